"""Batches filled up, and results as lines."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from oneflow import sbp as sbp_values
from oneflow.engine.core.errors import ArgumentError

logger = logging.getLogger("libai.evaluation")


def pad_batch(
    x_dict: Mapping[str, Any], batch_size: int, last_batch_lack: int, is_last_batch: bool, device: str | None = None
) -> tuple[dict[str, Any], int]:
    """The tensors of a batch, filled up with zeros to ``batch_size`` rows, and how many rows count: those there were,
    in the last batch without ``last_batch_lack``. Of a global tensor each rank's part is filled up to its share.
    ``device`` is not looked at: a tensor stays where it is.
    """
    rows = batch_rows(x_dict)
    if rows > batch_size:
        raise ArgumentError(
            f"a batch has {rows} rows, more than batch_size={batch_size}; test_micro_batch_size times the data "
            f"parallel ranks is what a batch holds"
        )
    valid = rows - last_batch_lack if is_last_batch else rows
    if rows == batch_size:
        return dict(x_dict), valid
    return {name: _padded(value, rows, batch_size) for name, value in x_dict.items()}, valid


def batch_rows(x_dict: Mapping[str, Any]) -> int:
    """The rows of a batch, by its first tensor that has dims."""
    for value in x_dict.values():
        if isinstance(value, torch.Tensor) and value.ndim:
            return value.shape[0]
    raise ArgumentError(f"a batch has no tensor with rows among its fields {list(x_dict)}")


def parts_of(tensor: Any) -> int:
    """Into how many parts the rows of a tensor are split."""
    if not getattr(tensor, "is_global", False):
        return 1
    parts = 1
    for size, sbp in zip(tensor.placement.ranks.shape, tensor.sbp):
        parts *= size if sbp == sbp_values.split(0) else 1
    return parts


def _padded(value: Any, rows: int, batch_size: int) -> Any:
    if not isinstance(value, torch.Tensor) or not value.ndim or value.shape[0] != rows:
        return value
    if not getattr(value, "is_global", False):
        return _filled(value, batch_size)
    whole: Any = value
    parts, local = parts_of(whole), whole.to_local()
    if local.ndim and local.shape[0] == rows // parts:  # a rank outside the placement has no rows
        local = _filled(local, batch_size // parts)
    return local.to_global(placement=whole.placement, sbp=whole.sbp)


def _filled(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return F.pad(tensor, [0, 0] * (tensor.ndim - 1) + [0, rows - tensor.shape[0]])


def print_csv_format(results: Mapping[str, Any]) -> None:
    """Logs results so that they can be copied: ``name=value`` for numbers; for the results of a task their names and
    values on two lines."""
    for task, found in results.items():
        if isinstance(found, Mapping):
            shown = [(name, value) for name, value in found.items() if "-" not in name]
            logger.info("copypaste: Task: %s", task)
            logger.info("copypaste: %s", ",".join(name for name, _ in shown))
            logger.info("copypaste: %s", ",".join(f"{value:.4f}" for _, value in shown))
        else:
            logger.info("copypaste: %s=%s", task, found)


def flatten_results_dict(results: Mapping[str, Any]) -> dict[str, Any]:
    """Nested results as one dictionary, the names joined by "/"."""
    flat: dict[str, Any] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            flat.update((f"{name}/{inner}", number) for inner, number in flatten_results_dict(value).items())
        else:
            flat[name] = value
    return flat
