"""Changes of layout, at once: the calls of ``sharding/boxing.py`` on this rank's part."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.core.region import local_shape
from oneflow.engine.global_tensor.spec import Spec
from oneflow.engine.ops.dense_operands import stride_safe
from oneflow.engine.sharding.boxing import Crossing, box
from oneflow.engine.sharding.mesh import Layout, Mesh, whole_on
from oneflow.engine.world import join
from oneflow.engine.world.order import meet

_MEETINGS = {collective.all_reduce, collective.gather_parts, collective.reduce_parts, collective.exchange_parts}
_TAG = 1 << 20  # of what goes from placement to placement: blocks between two ranks come in the order they are sent


class Calls:
    """Makes the calls of this rank, for an operation of this name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def call_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if function not in _MEETINGS:
            return stride_safe(function)(*args, **kwargs)
        value, *how, ranks = args
        if len(ranks) == 1:
            return _alone(function, value)
        with meet(self.name, tuple(sorted(ranks)), function.__name__, value.dtype, *how):
            return function(*args, **kwargs)

    def box_call(self, function: Any, args: tuple[Any, ...], source: Layout, target: Layout) -> Any:
        return self.call_function(function, args, {})


def _alone(function: Any, value: torch.Tensor) -> torch.Tensor:
    return value.clone() if function is collective.all_reduce else value


def moved(part: torch.Tensor | None, spec: Spec, target: Layout, name: str = "to_global") -> torch.Tensor | None:
    """This rank's part of a tensor in another layout; every rank of both placements comes here. It may share memory
    with ``part``."""
    if spec.layout == target:
        return part
    world = join()
    rank = world.rank
    if prod(spec.shape) == 0 or world.is_planned:
        return _empty(spec, target, rank)
    if spec.dtype == torch.bool:  # collectives do not know truth values; they travel as bytes
        found = _moved(None if part is None else part.view(torch.uint8), spec, torch.uint8, target, rank, name)
        return None if found is None else found.view(torch.bool)
    return _moved(part, spec, spec.dtype, target, rank, name)


def _moved(
    part: torch.Tensor | None, spec: Spec, dtype: torch.dtype, target: Layout, rank: int, name: str
) -> torch.Tensor | None:
    calls = Calls(name)
    if spec.layout.mesh == target.mesh:
        found = box(calls.box_call, rank, part, spec.shape, dtype, spec.layout, target)
        return (
            None if found is None else found.contiguous()
        )  # some kernels take a slice of a whole tensor for a tensor of its own
    both = tuple(sorted({*spec.layout.mesh.ranks, *target.mesh.ranks}))
    if rank not in both:
        return None
    crossing = Crossing(_TAG, str(spec.device))
    if len(both) == 1:
        return box(calls.box_call, rank, part, spec.shape, dtype, spec.layout, target, crossing)
    with meet(name, both, "exchange", dtype, spec.shape, spec.layout, target):
        return box(calls.box_call, rank, part, spec.shape, dtype, spec.layout, target, crossing)


def _empty(spec: Spec, target: Layout, rank: int) -> torch.Tensor | None:
    position = target.mesh.position(rank)
    if position is None:
        return None
    device = "meta" if join().is_planned else spec.device
    return torch.empty(local_shape(spec.shape, target.sbp, target.mesh.axes, position), dtype=spec.dtype, device=device)


def on_every_rank(part: torch.Tensor | None, spec: Spec, name: str) -> torch.Tensor:
    """The logical tensor, whole, on every rank of the world; all of them come here."""
    if join().is_planned:
        raise GlobalTensorError(
            f"{name} of a tensor of a planned world, where tensors have no data; flow.plan tells what a graph of them "
            f"would cost"
        )
    whole = whole_on(spec.layout.mesh)
    found = moved(part, spec, whole, name)
    world = world_mesh(join().size)
    if set(world.ranks) != set(spec.layout.mesh.ranks):
        found = moved(found, spec.laid(whole), whole_on(world), name)
    assert found is not None
    return found


@lru_cache(maxsize=None)
def world_mesh(size: int) -> Mesh:
    """All ranks, on one axis."""
    return Mesh(tuple(range(size)), (size,))


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and a.untyped_storage().nbytes() > 0
