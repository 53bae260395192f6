"""A model of libai as an ONNX file.

``flow.onnx.export`` traces with one length and lets the batch differ; here both do, which torch's exporter can.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from libai.config import LazyConfig
from libai.config.names import locate
from libai.inference.loaders import loader_of
from libai.models.build import build_model
from libai.models.utils.model_loader.base_loader import ModelLoaderLiBai
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.checkpoint.writing import sync_folder
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.optional import optional_package

Inputs = dict[str, Tensor]
LENGTH, BATCH = "length", "batch"


@dataclass(frozen=True)
class Kind:
    """What a model is called with, for a batch and a length; which dims of its inputs differ; and what of its results
    is exported."""

    inputs: Callable[[Any, int, int], Inputs]
    axes: Mapping[str, tuple[str | None, ...]]
    outputs: tuple[str, ...]


def export_to_onnx(
    model: nn.Module, path: str | os.PathLike[str], opset: int = 17, check: bool = True, atol: float = 1e-4
) -> Path:
    """Writes a GPT, Llama, BERT, RoBERTa, T5 or ViT, in evaluation mode, as one ONNX file that takes any batch and, of
    texts, any length up to the model's positions.

    ``check`` compares ONNX Runtime with the model for another batch and length: a difference above ``atol`` is an
    error, and no file is written. All ranks call it; the first one writes, beside the place, and renames.
    """
    kind = kind_of(model)
    if model.training:
        raise ArgumentError("the model is in training mode: call model.eval() before it is exported")
    alone = _Named(whole_on_one(model), tuple(kind.inputs(model, 1, 1)), kind.outputs)
    failed: Exception | None = None
    if dist.is_main_process():
        try:
            _write(alone, kind, Path(path), opset, atol if check else None)
        except Exception as error:
            if dist.get_world_size() == 1:
                raise
            failed = error  # told to the others, who wait
    failed = dist.broadcast_py_object(failed)
    if failed is not None:
        raise failed
    return Path(path)


class _Named(torch.nn.Module):
    """A model whose arguments and results stand in order, as torch's exporter wants them."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs
        # the exporter leaves the mode that this module had: dropout must stay off where its file is compared
        self.eval()

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        found = self.model(**dict(zip(self.inputs, values)))
        return tuple(found[name] for name in self.outputs if found[name] is not None)


def whole_on_one(model: nn.Module) -> nn.Module:
    """A copy with local tensors, whole on every rank."""
    made = copy.deepcopy(model)
    done: dict[int, Any] = {}
    for module in made.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                value: Any = tensor
                if value is not None and value.is_global:
                    if id(value) not in done:
                        local = dist.ttol(value.detach(), device="cpu", ranks=list(range(dist.get_world_size())))
                        done[id(value)] = (
                            nn.Parameter(local, requires_grad=False) if isinstance(value, nn.Parameter) else local
                        )
                    tensors[name] = done[id(value)]
    return made.eval()


def _write(model: _Named, kind: Kind, path: Path, opset: int, atol: float | None) -> None:
    optional_package("onnx", "onnx", "export_to_onnx")
    example = kind.inputs(model.model, 2, 5)
    with torch.no_grad():
        results = model(*example.values())
    names = [name for name, value in zip(kind.outputs, results)]
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of sizes that the trace takes as they are: they are checked below
            torch.onnx.export(
                model, tuple(example.values()), beside, dynamo=False, opset_version=opset, input_names=list(example), output_names=names, dynamic_axes=_axes(kind, example, results, names)
            )  # fmt: skip
        if atol is not None:
            _compare(model, kind, beside, atol)
        os.chmod(beside, 0o644)
        os.replace(beside, path)
        sync_folder(path.parent)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _axes(kind: Kind, example: Inputs, results: tuple[Tensor, ...], names: list[str]) -> dict[str, dict[int, str]]:
    found = {name: {dim: axis for dim, axis in enumerate(kind.axes[name]) if axis is not None} for name in example}
    for name, value in zip(names, results):
        found[name] = {0: BATCH} | ({1: LENGTH} if value.dim() == 3 else {})
    return found


def _compare(model: _Named, kind: Kind, path: str, atol: float) -> None:
    runtime = optional_package("onnxruntime", "onnx", "export_to_onnx(check=True)")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    taken = {one.name for one in session.get_inputs()}
    for batch, length in ((1, 3), (3, 7)):
        inputs = kind.inputs(model.model, batch, length)
        with torch.no_grad():
            expected = model(*inputs.values())
        found = session.run(None, {name: value.numpy() for name, value in inputs.items() if name in taken})
        for name, mine, other in zip(kind.outputs, found, expected):
            largest = float(np.abs(mine - other.numpy()).max())
            if not largest <= atol:
                raise ArgumentError(
                    f"ONNX Runtime gives other {name} than the model for a batch of {batch}: {largest:.2e} apart, "
                    f"above atol={atol:.0e}"
                )


# ------------------------------------------------------------------------------------------------------------ kinds


def _ids(words: int, batch: int, length: int) -> Tensor:
    return torch.randint(0, words, (batch, length), generator=torch.Generator().manual_seed(batch * 1000 + length))


def _gpt(model: Any, batch: int, length: int) -> Inputs:
    return {"input_ids": _ids(model.GPT_model.embeddings.token_embeddings.num_embeddings, batch, length)}


def _llama(model: Any, batch: int, length: int) -> Inputs:
    return {"input_ids": _ids(model.model.embed_tokens.num_embeddings, batch, length)}


def _bert(model: Any, batch: int, length: int) -> Inputs:
    inner = model.bert
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[-1, length // 2 + 1 :] = 0
    ids = _ids(inner.embeddings.vocab_embeddings.num_embeddings, batch, length)
    return {"input_ids": ids, "attention_mask": mask, "tokentype_ids": ids % max(inner.embeddings.num_tokentypes, 1)}


def _roberta(model: Any, batch: int, length: int) -> Inputs:
    mask = torch.ones(batch, length, dtype=torch.long)
    return {
        "input_ids": _ids(model.roberta.embeddings.vocab_embeddings.num_embeddings, batch, length),
        "attention_mask": mask,
    }


def _t5(model: Any, batch: int, length: int) -> Inputs:
    words = model.t5_model.embedding.word_embeddings.num_embeddings
    read, written = length + 1, length
    ones = torch.ones(batch, read, read, dtype=torch.long)
    return {
        "encoder_input_ids": _ids(words, batch, read),
        "decoder_input_ids": _ids(words, batch, written),
        "encoder_attn_mask": ones,
        "decoder_attn_mask": ones[:, :written, :written].tril(),
        "encoder_decoder_attn_mask": ones[:, :written],
    }


def _vit(model: Any, batch: int, length: int) -> Inputs:
    size = model.patch_embed.img_size
    channels = model.patch_embed.proj.weight.shape[1]
    return {"images": torch.randn(batch, channels, *size, generator=torch.Generator().manual_seed(batch))}


_TEXT = (BATCH, LENGTH)
_BERT_AXES = {"input_ids": _TEXT, "attention_mask": _TEXT, "tokentype_ids": _TEXT}
_T5_AXES = {
    "encoder_input_ids": (BATCH, "encoder_length"), "decoder_input_ids": _TEXT, "encoder_attn_mask": (BATCH, "encoder_length", "encoder_length"),
    "decoder_attn_mask": (BATCH, LENGTH, LENGTH), "encoder_decoder_attn_mask": (BATCH, LENGTH, "encoder_length"),
}  # fmt: skip
KINDS: dict[str, Kind] = {
    "GPTForPreTraining": Kind(_gpt, {"input_ids": _TEXT}, ("prediction_scores",)),
    "LlamaForCausalLM": Kind(_llama, {"input_ids": _TEXT}, ("prediction_scores",)),
    "BertForPreTraining": Kind(_bert, _BERT_AXES, ("prediction_scores", "seq_relationship_score")),
    "BertForClassification": Kind(_bert, _BERT_AXES, ("logits",)),
    "RobertaForPreTraining": Kind(_roberta, _BERT_AXES, ("prediction_scores",)),
    "T5ForPreTraining": Kind(_t5, _T5_AXES, ("prediction_scores",)),
    "VisionTransformer": Kind(_vit, {"images": (BATCH, None, None, None)}, ("prediction_scores",)),
}


def kind_of(model: nn.Module) -> Kind:
    """How a model is exported."""
    for base in type(model).__mro__:
        if base.__name__ in KINDS:
            return KINDS[base.__name__]
    raise ArgumentError(
        f"export_to_onnx takes {', '.join(KINDS)}, got {type(model).__name__}; flow.onnx.export takes any module"
    )


def get_model(config_file: str) -> Any:
    """The model of a config in evaluation mode, in this process alone; with the weights of
    ``model.cfg.pretrained_model_path``, if it has one: a folder of transformers, or of a checkpoint."""
    dist.setup_dist_util({"device_type": "cpu"})
    lazy = LazyConfig.load(config_file).model
    path = (lazy.get("cfg") or {}).get("pretrained_model_path")
    if not path:
        return build_model(lazy).eval()
    target = locate(lazy["_target_"]) if isinstance(lazy["_target_"], str) else lazy["_target_"]
    kind = loader_of(target) if Path(path, "config.json").is_file() else ModelLoaderLiBai
    return kind(lazy, lazy.cfg, path).load()


def command(describes: str, arguments: list[str] | None = None) -> None:
    """A command that exports the model of a config."""
    parser = argparse.ArgumentParser(description=describes)
    parser.add_argument(
        "config_file", help="defines model, and model.cfg.pretrained_model_path if the weights are not random"
    )
    parser.add_argument("onnx_file")
    parser.add_argument("--opset", type=int, default=17)
    given = parser.parse_args(arguments)
    print(export_to_onnx(get_model(given.config_file), given.onnx_file, opset=given.opset))
