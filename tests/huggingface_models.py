"""Small models of ``transformers`` with random weights, and ours with the same weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

import libai.models as models
from libai.config import get_config
from libai.models import utils

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of importing it
    import transformers

WORDS, LENGTH = 43, 24
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
TEXT = {"vocab_size": WORDS, **SMALL, "max_position_embeddings": LENGTH}


@dataclass(frozen=True)
class Kind:
    """A model of theirs, the class of ours, its loader, and what both give for one input."""

    theirs: Callable[[], Any]
    ours: Any
    loader: Any
    cfg: Callable[[], Any]
    inputs: Callable[[], dict[str, Any]]
    their_scores: Callable[[Any, Mapping[str, Any]], Any]
    our_scores: Callable[[Any, Mapping[str, Any]], Any]


def _cfg(name: str, **more: Any) -> Callable[[], Any]:
    return lambda: OmegaConf.merge(get_config(f"common/models/{name}.py").cfg, more)


def _ids() -> torch.Tensor:
    return torch.randint(4, WORDS, (2, 9), generator=torch.Generator().manual_seed(1))


def _words() -> dict[str, Any]:
    return {"input_ids": _ids()}


def _masked() -> dict[str, Any]:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    ids = _ids().where(mask == 1, 1)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": torch.arange(9).ge(4).long().expand(2, 9).contiguous(),
    }


def _without_types() -> dict[str, Any]:
    return {name: value for name, value in _masked().items() if name != "token_type_ids"}


def _seen(scores: torch.Tensor, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Of tokens, not of padding."""
    return scores[inputs["attention_mask"] == 1]


def _of_bert(model: Any, x: Mapping[str, Any]) -> Any:
    found = model(x["input_ids"], x["attention_mask"], x.get("token_type_ids"))
    return found


def _pictures(size: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"images": torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))}


WINDOWS = {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4}
KINDS = {
    "GPT-2": Kind(
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=4, n_inner=24, initializer_range=0.3, bos_token_id=0, eos_token_id=None)),
        models.GPTForPreTraining, utils.GPT2LoaderHuggerFace, _cfg("gpt"), _words,
        lambda m, x: m(**x).logits, lambda m, x: m(**x)["prediction_scores"],
    ),
    "GPT-2, erf": Kind(
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, activation_function="gelu", initializer_range=0.3)),
        models.GPTModel, utils.GPT2LoaderHuggerFace, _cfg("gpt"), _words,
        lambda m, x: m(**x).logits, lambda m, x: m(**x),
    ),
    "BERT": Kind(
        lambda: transformers.BertForPreTraining(transformers.BertConfig(**TEXT, initializer_range=0.3)),
        models.BertForPreTraining, utils.BertLoaderHuggerFace, _cfg("bert"), _masked,
        lambda m, x: (_seen(m(**x).prediction_logits, x), m(**x).seq_relationship_logits),
        lambda m, x: (_seen(_of_bert(m, x)["prediction_scores"], x), _of_bert(m, x)["seq_relationship_score"]),
    ),
    "BERT, base": Kind(
        lambda: transformers.BertModel(transformers.BertConfig(**TEXT, initializer_range=0.3)),
        models.BertModel, utils.BertLoaderHuggerFace, _cfg("bert"), _masked,
        lambda m, x: (_seen(m(**x).last_hidden_state, x), m(**x).pooler_output), lambda m, x: (_seen(_of_bert(m, x)[0], x), _of_bert(m, x)[1]),
    ),
    "BERT, classifier": Kind(
        lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**TEXT, num_labels=3, initializer_range=0.3)),
        models.BertForClassification, utils.BertLoaderHuggerFace, _cfg("bert", num_labels=3, classifier_dropout=0.0), _masked,
        lambda m, x: m(**x).logits, lambda m, x: _of_bert(m, x)["logits"],
    ),
    "RoBERTa": Kind(
        lambda: transformers.RobertaForMaskedLM(transformers.RobertaConfig(**TEXT, type_vocab_size=1, initializer_range=0.3)),
        models.RobertaForPreTraining, utils.RobertaLoaderHuggerFace, _cfg("roberta"), _without_types,
        lambda m, x: _seen(m(**x).logits, x), lambda m, x: _seen(_of_bert(m, x)["prediction_scores"], x),
    ),
    "Llama": Kind(
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT, num_key_value_heads=2, initializer_range=0.3, pad_token_id=None, bos_token_id=0, eos_token_id=None)),
        models.LlamaForCausalLM, utils.LlamaLoaderHuggerFace, _cfg("llama"), _words,
        lambda m, x: m(**x).logits, lambda m, x: m(**x)["prediction_scores"],
    ),
    "Llama, tied, scaled": Kind(
        lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
            **TEXT, tie_word_embeddings=True, initializer_range=0.3, attention_bias=True, mlp_bias=True, head_dim=6, pad_token_id=None, bos_token_id=0, eos_token_id=None,
            rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8})),
        models.LlamaForCausalLM, utils.LlamaLoaderHuggerFace, _cfg("llama"), _words,
        lambda m, x: m(**x).logits, lambda m, x: m(**x)["prediction_scores"],
    ),
    "ViT": Kind(
        lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL, image_size=12, patch_size=4, num_labels=5, initializer_range=0.3)),
        models.VisionTransformer, utils.ViTLoaderHuggerFace, _cfg("vit/vit_tiny_patch16_224"), _pictures(12),
        lambda m, x: m(x["images"]).logits, lambda m, x: m(**x)["prediction_scores"],
    ),
    "Swin": Kind(
        lambda: transformers.SwinForImageClassification(transformers.SwinConfig(**WINDOWS, num_labels=5, initializer_range=0.3)),
        models.SwinTransformer, utils.SwinLoaderHuggerFace, _cfg("swin/swin_tiny_patch4_window7_224"), _pictures(32),
        lambda m, x: m(x["images"]).logits, lambda m, x: m(**x)["prediction_scores"],
    ),
    "SwinV2": Kind(
        lambda: transformers.Swinv2ForImageClassification(transformers.Swinv2Config(**WINDOWS, num_labels=5, initializer_range=0.3, pretrained_window_sizes=[0, 0])),
        models.SwinTransformerV2, utils.SwinV2LoaderHuggerFace, _cfg("swinv2/swinv2_tiny_patch4_window8_256"), _pictures(32),
        lambda m, x: m(x["images"]).logits, lambda m, x: m(**x)["prediction_scores"],
    ),
}  # fmt: skip


def theirs(name: str) -> Any:
    """The model of theirs, its weights by a fixed seed."""
    torch.manual_seed(3)
    model = KINDS[name].theirs().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too, which are plain at first
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model


def save(model: Any, folder: Path, **more: Any) -> Path:
    """The folder that their ``save_pretrained`` writes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder, **more)
    return folder


def ours(name: str, folder: Path, **more: Any) -> Any:
    """Our model with the weights of a folder."""
    kind = KINDS[name]
    return kind.loader(kind.ours, kind.cfg(), str(folder), **more).load()
