"""The fields of a batch that a model is trained on: those of LiBai's models are known, others are looked up in the data
set."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch

from libai.config import instantiate, try_get_key
from libai.config.errors import ConfigError
from libai.config.names import locate
from libai.config.tree import where
from libai.data import Instance


class Field(NamedTuple):
    """Of one sample: its shape, and the layer at whose stage it is needed."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layer: int


def fields_of(cfg: Any) -> dict[str, Field]:
    """The fields by the names of the model's arguments."""
    target = cfg.model.get("_target_")
    kind: Any = locate(target) if isinstance(target, str) else target
    arguments = set(inspect.signature(kind.forward).parameters) if hasattr(kind, "forward") else set()
    if {"encoder_input_ids", "decoder_input_ids", "lm_labels"} <= arguments:
        return _of_pairs(cfg)
    if {"input_ids", "lm_labels", "loss_mask"} <= arguments:
        return _of_masked_text(cfg, "ns_labels" in arguments)
    if {"input_ids", "labels"} <= arguments:
        return _of_text(cfg, "tokentype_ids" in arguments)
    if {"images", "labels"} <= arguments:
        return _of_pictures(cfg)
    return _of_data_set(cfg)


def _length(cfg: Any) -> int:
    """How long texts are: as the data set says, or as the model takes at most."""
    described = cfg.get("dataloader", {}).get("train")
    data = try_get_key(described, "dataset")
    first = data[0] if data is not None and not hasattr(data, "keys") else data
    found = try_get_key(first, "max_seq_length") or try_get_key(
        cfg.model, "cfg.max_seq_length", "cfg.max_position_embeddings", "max_seq_length", "max_position_embeddings"
    )
    if found is None:
        raise ConfigError(
            f"the length of texts{where(cfg)} is not known; give the model max_seq_length or max_position_embeddings"
        )
    return found


def _ids(*shape: int, layer: int = 0) -> Field:
    return Field(shape, torch.int64, layer)


def _of_text(cfg: Any, is_classified: bool) -> dict[str, Field]:
    length = _length(cfg)
    if not is_classified:
        return {"input_ids": _ids(length), "labels": _ids(length, layer=-1)}
    return {
        "input_ids": _ids(length),
        "attention_mask": _ids(length),
        "labels": _ids(layer=-1) if try_get_key(cfg.model, "cfg.num_labels") else _ids(length, layer=-1),
    }


def _of_masked_text(cfg: Any, has_order: bool) -> dict[str, Field]:
    length = _length(cfg)
    found = {"input_ids": _ids(length), "attention_mask": _ids(length), "tokentype_ids": _ids(length)}
    order = {"ns_labels": _ids(layer=-1)} if has_order else {}
    return found | order | {"lm_labels": _ids(length, layer=-1), "loss_mask": _ids(length, layer=-1)}


def _of_pairs(cfg: Any) -> dict[str, Field]:
    length = _length(cfg)
    data = try_get_key(cfg, "dataloader.train.dataset")
    decoder = (
        try_get_key(data[0], "max_seq_length_dec", default=length)
        if data is not None and not hasattr(data, "keys")
        else length
    )
    return {
        "encoder_input_ids": _ids(length),
        "decoder_input_ids": _ids(decoder),
        "encoder_attn_mask": _ids(length, length),
        "decoder_attn_mask": _ids(decoder, decoder),
        "encoder_decoder_attn_mask": _ids(decoder, length),
        "lm_labels": _ids(decoder, layer=-1),
        "loss_mask": _ids(decoder, layer=-1),
    }


def _of_pictures(cfg: Any) -> dict[str, Field]:
    extent = try_get_key(cfg.model, "img_size", "cfg.img_size", default=224)
    sides = (extent, extent) if isinstance(extent, int) else tuple(extent)
    return {
        "images": Field((try_get_key(cfg.model, "in_chans", "cfg.in_chans", default=3), *sides), torch.float32, 0),
        "labels": _ids(layer=-1),
    }


def _of_data_set(cfg: Any) -> dict[str, Field]:
    data = try_get_key(cfg, "dataloader.train.dataset")
    first = data[0] if data is not None and not hasattr(data, "keys") else data
    if first is None:
        raise ConfigError(
            f"what the model is called with{where(cfg)} is told by the first sample of dataloader.train.dataset; there "
            f"is none"
        )
    sample = instantiate(first)[0]
    if not isinstance(sample, Instance):
        raise ConfigError(f"a data set{where(cfg)} gives an Instance for each sample, got {type(sample).__name__}")
    return {
        name: Field(tuple(field.tensor.shape), field.tensor.dtype, field.placement_idx)
        for name, field in sample.get_fields().items()
    }
