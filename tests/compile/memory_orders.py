"""Samples of op rows on tensors in many memory orders: which aten ops give their results other strides than were
traced."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
import traced
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from oneflow.engine.ir.blob import Blob

ORDERS: dict[str, Callable[[int], list[int]]] = {
    "contiguous": lambda rank: list(range(rank)),
    "channels last": lambda rank: [0, *range(2, rank), 1] if rank > 2 else list(range(rank)),
    "reversed": lambda rank: list(range(rank))[::-1],
    "last two swapped": lambda rank: [*range(rank - 2), rank - 1, rank - 2],
}
MIXED = "each another"
PAIRS = [
    ("contiguous", "channels last"),
    ("contiguous", "last two swapped"),
    ("channels last", "contiguous"),
    ("channels last", "channels last"),
    ("reversed", "contiguous"),
    ("last two swapped", "reversed"),
    (MIXED, "last two swapped"),
]
"""The orders of what a sample is given, and of the gradients of its results."""


def in_order(tensor: Tensor, order: str) -> Tensor:
    """A copy whose dims lie in memory in the named order, which is what a transposed value looks like."""
    if tensor.dim() < 2:
        return tensor.clone()
    dims = ORDERS[order](tensor.dim())
    back = sorted(range(len(dims)), key=dims.__getitem__)
    return tensor.permute(dims).clone(memory_format=torch.contiguous_format).permute(back)


def _all_in_order(tensors: list[Tensor], order: str) -> list[Tensor]:
    names = list(ORDERS) if order == MIXED else [order]
    return [in_order(tensor.detach(), names[i % len(names)]) for i, tensor in enumerate(tensors)]


@lru_cache(maxsize=None)
def differing(file: str) -> dict[Any, str]:
    """The ops in the samples of a file whose results do not lie as traced, each with the first case."""
    found: dict[Any, str] = {}
    for sample in import_module(file).SAMPLES:
        seen, joint = set(), traced.joint(sample)
        for given, gradients in PAIRS:
            feeds = [
                *_all_in_order(joint.tensors, given),
                *_all_in_order(list(map(_cotangent, joint.floats)), gradients),
            ]
            strides = tuple(tensor.stride() for tensor in feeds)
            if strides not in seen:
                seen.add(strides)
                for op, case in _differing_calls(joint.step, feeds):
                    found.setdefault(op, f"{sample.row}, inputs {given}, gradients {gradients}: {case}")
    return found


def _cotangent(blob: Blob) -> Tensor:
    count = torch.Size(blob.shape).numel()
    return torch.linspace(0.5, 1.5, count, dtype=blob.dtype).reshape(blob.shape)


class _Compared(TorchDispatchMode):
    """Runs every call twice, as it is and as tracing does, without data. What then lies otherwise is laid as it was
    traced before others read it, so that each op answers for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, str]] = []
        self._fake = FakeTensorMode()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        with self._fake:
            fake_args, fake_kwargs = tree_map_only(Tensor, _without_data, (args, kwargs or {}))
            was_traced = op(*fake_args, **fake_kwargs)
        real = op(*args, **(kwargs or {}))
        wrong = [(t, r) for t, r in _pairs(was_traced, real) if not _lies_as(r, t)]
        self.found += [(op, f"{tuple(t.shape)} lies as {r.stride()}, traced as {t.stride()}") for t, r in wrong]
        return _as_traced(was_traced, real) if wrong else real


def _without_data(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _differing_calls(step: Callable[..., list[Tensor]], feeds: list[Tensor]) -> list[tuple[Any, str]]:
    """The calls of forward and backward whose results do not lie as traced."""
    with _Compared() as compared:
        step(*feeds)
    return compared.found


def _pairs(was_traced: Any, real: Any) -> list[tuple[Tensor, Tensor]]:
    both = zip(tree_leaves(was_traced), tree_leaves(real), strict=True)
    return [(t, r) for t, r in both if isinstance(r, Tensor)]


def _lies_as(a: Tensor, b: Tensor) -> bool:
    return a.numel() == 0 or all(size == 1 or x == y for size, x, y in zip(a.shape, a.stride(), b.stride()))


def _as_traced(was_traced: Any, real: Any) -> Any:
    if isinstance(real, (tuple, list)):
        return [_as_traced(t, r) for t, r in zip(was_traced, real, strict=True)]
    if not isinstance(real, Tensor):
        return real
    return torch.empty_strided(was_traced.shape, was_traced.stride(), dtype=was_traced.dtype).copy_(real)
