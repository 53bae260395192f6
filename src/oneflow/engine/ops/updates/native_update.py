"""Sweeps by the C extension, where it is built: for float32 in dense memory of a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from oneflow.engine.ops import native
from oneflow.engine.ops.cpu.fused_norm import FOR_A_THREAD
from oneflow.engine.ops.updates.update_recipes import Columns, Direction, Recipe, Rows
from oneflow.engine.ops.updates.update_sweeps import Sweep

NAMES = frozenset(native.update.names() if native.update is not None else ())


def takes(sweeps: Sequence[Sweep], columns: Columns) -> bool:
    """Whether the extension has these sweeps, for variables that lie so, each with a gradient and states in the same
    order. What has not the size of its variable is none of a sweep's."""
    if not NAMES.issuperset(sweep.name for sweep in sweeps):
        return False
    for param, *others in zip(*columns):
        if param.dtype is not torch.float32 or param.device.type != "cpu" or not is_dense(param):
            return False
        if not all(
            one.dtype is torch.float32 and lies_as(one, param) for one in others if one.numel() == param.numel()
        ):
            return False
    return True


def updated(recipe: Recipe, columns: Columns, lr: float, numbers: dict[str, Any]) -> bool:
    """Does an update by the extension, of torch's own tensors, and tells torch of the writes; False where it cannot,
    and nothing is done."""
    if not all(type(tensor) in (Tensor, Parameter) for column in columns for tensor in column) or not takes(
        recipe.sweeps, columns
    ):
        return False
    recipe(run, columns, Direction(), lr, **numbers)
    torch._C._increment_version([tensor for column in (columns[0], *columns[2:]) for tensor in column])
    return True


def run(sweep: Sweep, columns: Columns, rows: Rows) -> list[tuple[float, ...]]:
    """Runs a sweep on what it ``takes``."""
    assert native.update is not None
    sizes = [param.numel() for param in columns[0]]
    threads = max(1, min(torch.get_num_threads(), sum(sizes) // FOR_A_THREAD))
    addresses = [[tensor.data_ptr() for tensor in column] for column in columns]
    return native.update.sweep(sweep.name, addresses, sizes, rows, threads)


def lies_as(a: Tensor, b: Tensor) -> bool:
    """Whether elements lie in the same order in memory; the stride of a dim of one element says nothing."""
    return a.stride() == b.stride() or all(size == 1 or x == y for size, x, y in zip(a.shape, a.stride(), b.stride()))


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements lie side by side, in whichever order."""
    return (
        tensor.is_contiguous()
        or 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) == tensor.numel()
    )
