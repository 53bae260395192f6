"""One step of generation with any model: from the tokens so far to the scores of the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import oneflow as flow
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError


class CachedSteps:
    """By a decoder with a cache: after the first step only the new tokens go in."""

    def __init__(self, decoder: Any, attention_mask: Tensor | None) -> None:
        self._decoder, self._mask = decoder, attention_mask
        self._is_started = False

    def scores(self, ids: Tensor) -> Tensor:
        """Of the next token of every row, ``[rows, vocabulary]``."""
        if self._is_started:
            found: Tensor = self._decoder.step(ids[:, -1])
        else:
            found = self._decoder.start(ids, self._mask)
            self._is_started = True
        return found

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row ``rows[i]`` was."""
        if not torch.equal(rows, torch.arange(len(rows), device=rows.device)):
            self._decoder.reorder(rows)


class ModelSteps:
    """By the model's ``forward``, with what its ``prepare_inputs_for_generation`` makes of the tokens.
    ``past_key_values`` among its results come back to it."""

    def __init__(self, model: Any, model_kwargs: dict[str, Any]) -> None:
        self._model, self._kwargs = model, model_kwargs
        first = next(model.parameters(), None)
        self._is_global = first is not None and first.is_global

    def scores(self, ids: Tensor) -> Tensor:
        """Of the next token of every row, ``[rows, vocabulary]``."""
        inputs = self._model.prepare_inputs_for_generation(
            self._given(ids), **{name: self._given(value) for name, value in self._kwargs.items()}
        )
        outputs = self._model(**inputs)
        if isinstance(outputs, Mapping) and outputs.get("past_key_values") is not None:
            self._kwargs["past_key_values"] = outputs["past_key_values"]
        if self._kwargs.get("attention_mask") is not None and "encoder_input_ids" not in self._kwargs:
            mask = self._kwargs["attention_mask"]
            self._kwargs["attention_mask"] = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        return _whole(_logits(outputs, self._model))[:, -1]

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from what row ``rows[i]`` was."""
        past = self._kwargs.get("past_key_values")
        if past is not None:
            own = getattr(self._model, "_reorder_cache", None)
            self._kwargs["past_key_values"] = (
                own(past, rows) if own is not None else _reordered(past, self._given(rows))
            )

    def _given(self, value: Any) -> Any:
        """A tensor as the model takes it: global, whole on every rank, for a model of global parameters."""
        is_tensor: bool = flow.is_tensor(value)
        if not self._is_global or not is_tensor or value.is_global:
            return value
        return as_global(value)


def as_global(value: Any) -> Any:
    """A tensor that all ranks have, as a global one of the first stage."""
    return value.to_global(dist.get_layer_placement(0), dist.get_nd_sbp([flow.sbp.broadcast, flow.sbp.broadcast]))


def _whole(value: Any) -> Tensor:
    """All of a tensor on every rank of the world."""
    if not value.is_global:
        found: Tensor = value
        return found
    found = dist.ttol(value, device=value.placement.type, ranks=list(range(dist.get_world_size())))
    return found


def _logits(outputs: Any, model: Any) -> Any:
    if isinstance(outputs, Mapping):
        for name in ("logits", "prediction_scores"):
            if name in outputs:
                return outputs[name]
        raise ArgumentError(
            f"forward of {type(model).__name__} returned {', '.join(outputs)}; generate() looks for 'logits' or "
            f"'prediction_scores', [rows, length, vocabulary]"
        )
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


def _reordered(past: Any, rows: Any) -> Any:
    if isinstance(past, (tuple, list)):
        return type(past)(_reordered(one, rows) for one in past)
    is_tensor: bool = flow.is_tensor(past)
    if not is_tensor:
        return past
    if past.is_global and past.placement != rows.placement:  # what a later stage has kept
        rows = rows.to_global(placement=past.placement)
    return past.index_select(0, rows)
