"""Models of ours as folders of ``transformers``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from libai.models.utils.model_loader.bert_loader import BertFamily
from libai.models.utils.model_loader.families import Family
from libai.models.utils.model_loader.folders import write_folder
from libai.models.utils.model_loader.gpt_loader import GPT2Family
from libai.models.utils.model_loader.llama_loader import LlamaFamily
from libai.models.utils.model_loader.roberta_loader import RobertaFamily
from libai.models.utils.model_loader.swin_loader import SwinFamily
from libai.models.utils.model_loader.swinv2_loader import SwinV2Family
from libai.models.utils.model_loader.vit_loader import ViTFamily
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError, CheckpointError
from oneflow.engine.global_tensor.gather_to import all_succeeded, whole_at

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("RobertaModel", "RobertaForPreTraining", "RobertaForCausalLM"), RobertaFamily()),
    **dict.fromkeys(("BertModel", "BertForPreTraining", "BertForClassification"), BertFamily()),
    **dict.fromkeys(("GPTModel", "GPTForPreTraining"), GPT2Family()),
    **dict.fromkeys(("LlamaModel", "LlamaForCausalLM"), LlamaFamily()),
    "VisionTransformer": ViTFamily(),
    "SwinTransformerV2": SwinV2Family(),
    "SwinTransformer": SwinFamily(),
}


def export_to_huggingface(model: nn.Module, folder: str | Path, max_shard_size: int = 5 * 10**9) -> None:
    """Writes ``config.json`` and the weights, in files of at most ``max_shard_size`` bytes, as ``from_pretrained`` of
    ``transformers`` reads them.

    All ranks call it; the first one writes, beside the place, and renames. The folder must not exist.
    """
    family = family_of(model)
    cfg = family.described(model)
    architecture = family.architecture(model)
    weights = _theirs(family, model, cfg, has_prefix=architecture not in _BASES)
    config = {"architectures": [architecture], "dtype": "float32", **family.their_config(model, cfg)}
    error: CheckpointError | None = None
    if dist.is_main_process():
        try:
            write_folder(Path(folder), config, weights.items(), max_shard_size)
        except CheckpointError as found:
            error = found
        except OSError as found:
            error = CheckpointError(f"cannot write {str(folder)!r}: {found.strerror}; choose another folder")
    if not all_succeeded(error):
        raise error or CheckpointError(f"rank 0 could not write {str(folder)!r}; its own error says why")


_BASES = ("BertModel", "RobertaModel", "LlamaModel")


def family_of(model: nn.Module) -> Family:
    """What kind of model it is."""
    found = next((FAMILIES[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in FAMILIES), None)
    if found is None:
        raise ArgumentError(f"export_to_huggingface takes {', '.join(FAMILIES)}; got {type(model).__name__}")
    return found


def _theirs(family: Family, model: nn.Module, cfg: dict[str, Any], has_prefix: bool) -> dict[str, torch.Tensor]:
    """All weights under their names, on the first rank; nothing on others."""
    own = model.state_dict()
    is_below = any(name.startswith(family.our_prefix) for name in own) if family.our_prefix else False
    found: dict[str, torch.Tensor] = {}
    left = {name for name in own if re.search(family.computed, name) is None}
    for rule in family.rules(cfg):
        name = family.our_prefix + rule.ours if rule.is_base and is_below else rule.ours
        if name not in own:
            continue
        left.discard(name)
        whole = whole_at(own[name], 0) if own[name].is_global else own[name].detach().cpu()
        if whole is not None and dist.is_main_process():
            prefix = family.their_prefix if rule.is_base and has_prefix else ""
            found |= {prefix + theirs: part for theirs, part in zip(rule.theirs, rule.part(whole))}
    if left:
        raise CheckpointError(
            f"{type(model).__name__} has weights that transformers' models have not: {', '.join(sorted(left)[:5])}"
        )
    return found
