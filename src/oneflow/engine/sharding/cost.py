"""The cost model, what layouts cost: bytes moved between ranks, and work done more than once.

Costs are in bytes sent by each rank. Work counts too, so that a batch is not gathered only to spare a reduction:
sixteen floating-point operations weigh as much as a byte, or eight bytes read or written. That is little against what
processors do in the time they send a byte, on purpose: devices were asked for to share the work. Still, the gradient of
a large matrix over a small batch costs less to compute everywhere than to add up; where ranks can each make some of its
rows (``Search.shared``), over any batch. Memory only decides between layouts that cost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from oneflow.engine.core.sbp import Sbp
from oneflow.engine.sharding.call import Call, TensorLike, nbytes, with_tensors
from oneflow.engine.sharding.mesh import NdSbp
from oneflow.engine.sharding.rules.rule import Signature

_PER_OPERATION = 1 / 16
_PER_BYTE_TOUCHED = 1 / 8
_PER_BYTE_HELD = 1e-6
_START = 32768.0  # of a collective: what could have been sent in the time it takes to begin
_START_OF_SUM = 16.0  # sums of gradients are put together in buckets and begin once for many


@dataclass(frozen=True)
class Prices:
    """What a search weighs: ``work`` and ``start`` multiply the prices of work and of the beginning of a collective;
    ``held`` is that of a byte of memory."""

    work: float = 1.0
    start: float = 1.0
    held: float = 0.0


USUAL = Prices()


def boxing(source: Sbp, target: Sbp, size: float, parts: int, is_last: bool = False, prices: Prices = USUAL) -> float:
    """The cost of changing the layout of a tensor of ``size`` bytes along one axis. ``is_last`` of what a step ends
    with: its gradients."""
    if source is target or source.kind == "B" or target.kind == "P" or parts == 1:
        return 0.0
    if source.kind == "P":
        start = _START_OF_SUM if is_last and target.kind == "B" else _START
        return start * prices.start + size * (parts - 1) / parts * (2 if target.kind == "B" else 1)
    if (
        is_last and target.kind == "B"
    ):  # it can neither begin before the backward pass ends nor go with others, as a sum can
        return _START * prices.start + size * (parts - 1) / parts * 2
    return _START * prices.start + size * (parts - 1) / parts / (1 if target.kind == "B" else parts)


def change(source: NdSbp, target: NdSbp, size: float, axes: Sequence[int]) -> float:
    """The cost of changing the layout of a tensor of ``size`` bytes on a mesh of these axes."""
    return sum(boxing(a, b, size, parts) for a, b, parts in zip(source, target, axes))


def transfer(source: Sbp, target: Sbp, size: float, parts: int, prices: Prices = USUAL) -> float:
    """The cost of bringing a tensor from one mesh to another, in ``target`` layout over ``parts`` ranks."""
    reduced = size if source.kind == "P" else 0.0
    return _START * prices.start + reduced + (size / parts if target.kind == "S" else size)


@cache
def _flop_registry() -> Mapping[Any, Callable[..., int]]:
    """How torch counts the operations of an op; loaded when the first cost is asked for, which one device never
    does."""
    from torch.utils.flop_counter import flop_registry

    return flop_registry


def operations(call: Call) -> int:
    """The floating-point operations of a call on its whole tensors, of those ops that have many per element."""
    count = _flop_registry().get(getattr(call.op, "overloadpacket", None))
    if count is None:
        return 0
    args, kwargs, result = with_tensors((call.args, call.kwargs, call.result), _without_data)
    return int(count(*args, **kwargs, out_val=result))


def _without_data(described: TensorLike) -> torch.Tensor:
    """torch counts by the shapes of tensors alone, but wants tensors."""
    return (
        described
        if isinstance(described, torch.Tensor)
        else torch.empty(described.shape, dtype=described.dtype, device="meta")
    )


def touched(call: Call) -> int:
    """The bytes that a call reads and writes."""
    return _total((*call.results, *call.inputs))


def work(call: Call, signatures: Iterable[Signature], parts: int, share: float) -> list[float]:
    """The cost of running a call as each signature says; ``share`` is what earlier axes left of it to each rank."""
    whole = whole_work(call)
    return [(share / parts if is_split(s) else share) * (whole + extra_work(s)) + inside(s) for s in signatures]


def whole_work(call: Call) -> float:
    """The cost of a call's work where one rank does all of it."""
    return operations(call) * _PER_OPERATION + touched(call) * _PER_BYTE_TOUCHED + _total(call.results) * _PER_BYTE_HELD


def extra_work(signature: Signature) -> float:
    """The cost of what a lowering reads and writes besides."""
    return signature.touched * _PER_BYTE_TOUCHED


def _total(tensors: Iterable[TensorLike | None]) -> int:
    return sum(nbytes(tensor) for tensor in tensors if tensor is not None)


def is_split(signature: Signature) -> bool:
    """Whether each rank does a part of the work."""
    return any(sbp.kind == "S" for sbp in (*signature.inputs, *signature.outputs))


def inside(signature: Signature, prices: Prices = USUAL) -> float:
    """What the collectives cost that a lowering makes itself."""
    return _START * prices.start + 2.0 * signature.moved if signature.moved else 0.0
