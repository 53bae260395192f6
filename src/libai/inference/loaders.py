"""Which loader takes the weights of which model."""

from __future__ import annotations

from typing import Any

from libai.models import utils
from oneflow.engine.core.errors import ArgumentError

LOADERS: dict[str, Any] = {
    "BertModel": utils.BertLoaderHuggerFace,
    "BertForPreTraining": utils.BertLoaderHuggerFace,
    "BertForClassification": utils.BertLoaderHuggerFace,
    "RobertaModel": utils.RobertaLoaderHuggerFace,
    "RobertaForPreTraining": utils.RobertaLoaderHuggerFace,
    "RobertaForCausalLM": utils.RobertaLoaderHuggerFace,
    "GPTModel": utils.GPT2LoaderHuggerFace,
    "GPTForPreTraining": utils.GPT2LoaderHuggerFace,
    "LlamaModel": utils.LlamaLoaderHuggerFace,
    "LlamaForCausalLM": utils.LlamaLoaderHuggerFace,
    "VisionTransformer": utils.ViTLoaderHuggerFace,
    "SwinTransformerV2": utils.SwinV2LoaderHuggerFace,
    "SwinTransformer": utils.SwinLoaderHuggerFace,
}


def loader_of(kind: Any) -> Any:
    """The loader of transformers' folders for a class of models."""
    for name in (base.__name__ for base in getattr(kind, "__mro__", ())):
        if name in LOADERS:
            return LOADERS[name]
    raise ArgumentError(
        f"there is no loader of transformers' folders for {getattr(kind, '__name__', kind)!r}; there are some for "
        f"{', '.join(LOADERS)}. Override load_pretrain_weight"
    )
