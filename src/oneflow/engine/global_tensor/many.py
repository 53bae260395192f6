"""Ops on lists of tensors, by which optimizers update many at once: on the parts, where those of one variable lie
alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from math import isinf
from typing import Any

import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.global_tensor.constants import local_constants
from oneflow.engine.global_tensor.dispatch import Decisions
from oneflow.engine.global_tensor.move import Calls, moved
from oneflow.engine.global_tensor.spec import fresh, spec_of, without_sums
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.call import with_tensors
from oneflow.engine.sharding.mesh import Layout, whole_on
from oneflow.engine.world import join

aten = torch.ops.aten
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_REDUCING = ("_foreach_norm", "_foreach_max", "_foreach_powsum")
_WITH_VALUE = ("_foreach_addcdiv", "_foreach_addcmul")


@cache
def family(func: Any) -> Callable[[Decisions, Any, Args, Kwargs], Any] | None:
    """The handler of an op on lists of tensors; None of others."""
    name = func._schema.name
    if name.startswith("aten::_foreach_"):
        return foreach
    if name.startswith("aten::_fused_") and func._schema.is_mutable:
        return fused
    return unscale if name == "aten::_amp_foreach_non_finite_check_and_unscale_" else None


def _lie_alike(lists: Sequence[Sequence[Any]]) -> bool:
    """Whether the tensors at each place of these lists are split in the same way, or whole."""
    for row in zip(*lists):
        if any(not isinstance(value, GlobalTensor) or value._source is not None for value in row):
            return False
        first = row[0]._spec
        if any(value._spec.layout != first.layout or value._spec.shape != first.shape for value in row):
            return False
        if any(sbp.kind == "P" for sbp in first.sbp):
            return False
    return True


def _lists(args: Args) -> list[Any]:
    return [
        value for value in args if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor)
    ]


def foreach(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """On all parts at once, or tensor by tensor where layouts differ or an op looks at whole tensors."""
    lists = _lists((*args, *kwargs.values()))
    name = func._schema.name.removeprefix("aten::")
    if name.rstrip("_") in _REDUCING or not _lie_alike(lists) or any(value._part is None for value in lists[0]):
        return _one_by_one(decisions, name, func, args, kwargs, len(lists[0]))
    local_args, local_kwargs = with_tensors((args, kwargs), lambda t: t._part if isinstance(t, GlobalTensor) else t)
    made = func(*local_args, **local_kwargs)
    if func._schema.is_mutable:
        return None
    specs = [value._spec for value in lists[0]]
    return [
        GlobalTensor(part, spec_of(s.shape, s.stride, part.dtype, s.layout, s.device)) for part, s in zip(made, specs)
    ]


def _one_by_one(decisions: Decisions, name: str, func: Any, args: Args, kwargs: Kwargs, count: int) -> Any:
    if name == "_foreach_norm":
        return norms(args[0], float(args[1] if len(args) > 1 else 2.0))
    packet = getattr(aten, name.removeprefix("_foreach_"))
    found = []
    for place in range(count):
        mine = [_at(value, place) for value in args]
        named = {key: _at(value, place) for key, value in kwargs.items()}
        if name.rstrip("_") in _WITH_VALUE and len(mine) > 3:
            named["value"] = mine.pop()
        with local_constants():  # a number that comes with the list may be a local tensor
            found.append(packet(*mine, **named))
    return None if func._schema.is_mutable else found


def norms(tensors: Sequence[GlobalTensor], order: float) -> list[torch.Tensor]:
    """The norm of each tensor, by one collective of all ranks: as global tensors, or local ones where the tensors lie
    on several placements."""
    world = join()
    powers = torch.zeros(len(tensors), dtype=torch.float64)
    for place, tensor in enumerate(tensors):
        layout = Layout(tensor._spec.layout.mesh, without_sums(tensor._spec.sbp))
        part = moved(tensor._part, tensor._spec, layout, "norm")
        if part is not None and part.numel() and layout.is_first(world.rank):  # of those that hold the same, one counts
            found = torch.linalg.vector_norm(part, order, dtype=torch.promote_types(part.dtype, torch.float32)).double()
            powers[place] = found if isinf(order) or order == 0 else found**order
    if world.size > 1:
        powers = Calls("norm").call_function(
            collective.all_reduce, (powers, "max" if isinf(order) else "sum", world.ranks), {}
        )
    found = powers if isinf(order) or order == 0 else powers ** (1.0 / order)
    values = [value.to(tensor._spec.dtype) for value, tensor in zip(found.unbind(), tensors)]
    meshes = {tensor._spec.layout.mesh for tensor in tensors}
    if len(meshes) > 1:
        return values
    like = tensors[0]._spec
    is_member = like.layout.mesh.position(world.rank) is not None
    spec = partial(fresh, (), layout=whole_on(like.layout.mesh), device=like.device)
    return [GlobalTensor(value.to(like.device) if is_member else None, spec(dtype=value.dtype)) for value in values]


def _at(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, (list, tuple)) else value


def fused(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """An optimizer's update of all variables: elementwise, so each rank updates its parts."""
    lists = [value for value in _lists((*args, *kwargs.values())) if any(isinstance(t, GlobalTensor) for t in value)]
    if not _lie_alike(lists):
        raise GlobalTensorError(
            f"{func}: a variable, its gradient and its states must lie in one layout, split or whole; use the "
            f"optimizer without fused=True"
        )
    places = [i for i, value in enumerate(lists[0]) if value._part is not None]

    for own in lists[1:]:
        for i in places:  # the kernels go through memory, not through indices
            like = lists[0][i]._part
            if own[i]._part.stride() != like.stride():
                own[i]._part = torch.empty_like(like, dtype=own[i]._part.dtype).copy_(own[i]._part)

    def parts(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and len(value) == len(lists[0]):
            return [value[i]._part if isinstance(value[i], GlobalTensor) else value[i] for i in places]
        return value

    if places:
        func(*map(parts, args), **{name: parts(value) for name, value in kwargs.items()})


def unscale(decisions: Decisions, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Gradients are unscaled where they lie; an overflow that one rank finds is one of all."""
    gradients, found, scale = args
    parts = [value._part for value in gradients if value._part is not None]
    if parts:
        func(parts, found, scale)
    world = join()
    if world.size > 1:
        found.copy_(Calls("unscale").call_function(collective.all_reduce, (found, "max", world.ranks), {}))
