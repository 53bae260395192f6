"""Local tensors to global ones, from layout to layout, and back; each with its gradient."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.core.region import peers
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.global_tensor.agree import logical, told
from oneflow.engine.global_tensor.move import moved, on_every_rank, shares_memory
from oneflow.engine.global_tensor.placement import device_of, placement, require_device
from oneflow.engine.global_tensor.sbp import layouts_of, public
from oneflow.engine.global_tensor.spec import Spec, fresh, in_order_of, spec_of, without_sums
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.mesh import Layout, whole_on
from oneflow.engine.world import join
from oneflow.engine.world.order import meet


def layout_on(place: placement, sbp: Any, dims: int | None = None) -> Layout:
    """The layout that a user asks for, on ranks that there are."""
    if not isinstance(place, placement):
        raise GlobalTensorError(f"placement is a flow.placement, such as flow.placement('cpu', [0, 1]); got {place!r}")
    size = join().size
    missing = [rank for rank in place._mesh.ranks if rank >= size]
    if missing:
        raise GlobalTensorError(f"{place} names ranks {missing}, the world has {size}: ranks 0 to {size - 1}")
    layout = Layout(place._mesh, layouts_of(sbp, place._mesh.axes))
    highest = max((one.dim for one in layout.sbp if one.dim is not None), default=-1)
    if dims is not None and highest >= dims:
        raise GlobalTensorError(f"a tensor of {dims} dims cannot be split along dim {highest}")
    return layout


def device_here(place: placement) -> torch.device:
    """Where this rank's part of a tensor on a placement lies."""
    if place.type != "cpu" and not join().is_planned:
        require_device(place.type)
    return device_of(place.type, join().local_rank)


# ------------------------------------------------------------------ local to global


def from_local(local: torch.Tensor, place: placement, sbp: Any) -> GlobalTensor:
    """The global tensor of which the local tensors of all ranks are the parts. Of what lies whole along an axis, the
    first rank's counts."""
    layout, device = layout_on(place, sbp), device_here(place)
    return _FromLocal.apply(local, layout, device) if local.requires_grad else _laid(local, layout, device)


@entry
def given_away(local: torch.Tensor, place: placement, sbp: tuple[Any, ...]) -> GlobalTensor:
    """``from_local`` of a tensor without a gradient in whose memory nobody else has an interest: it may become that of
    the global tensor."""
    world = join()
    if world.size > 1 or world.is_planned:
        return _laid(local, layout_on(place, sbp), device_here(place), is_given=True)
    spec = _spec_alone(local.dtype, local.shape, place, sbp)
    return GlobalTensor(local if local.device == spec.device else local.to(spec.device), spec)


@lru_cache(maxsize=1 << 10)
def _spec_alone(dtype: torch.dtype, shape: torch.Size, place: placement, sbp: tuple[Any, ...]) -> Spec:
    """What a tensor of the only rank is there. Kept, since every field of every batch asks for one of a few."""
    layout = layout_on(place, sbp)
    dtype, whole = logical(told(torch.empty(shape, dtype=dtype, device="meta")), layout)
    return fresh(whole, dtype, layout, device_here(place))


def _laid(local: torch.Tensor, layout: Layout, device: torch.device, is_given: bool = False) -> GlobalTensor:
    dtype, shape = logical(told(local), layout)
    part = None
    if layout.mesh.position(join().rank) is None:
        pass
    elif join().is_planned:
        part = torch.empty(local.shape, dtype=dtype, device="meta")
    else:
        part = _agreed(local.detach().to(device), layout)
        part = part.clone() if not is_given and shares_memory(part, local) else part
    return GlobalTensor(part, fresh(shape, dtype, layout, device))


class _FromLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, layout: Layout, device: torch.device) -> GlobalTensor:
        ctx.layout, ctx.device, ctx.local = layout, device, (tuple(local.shape), local.dtype, local.device)
        return _laid(local, layout, device)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """A slice where it is split, all of it where it is a sum; of what lies whole, the first rank's tensor was
        taken."""
        layout, (shape, dtype, device) = ctx.layout, ctx.local
        part = gradient_in(gradient, Layout(layout.mesh, without_sums(layout.sbp)), ctx.device)._part
        if part is None or not layout.is_first(join().rank):
            return torch.zeros(shape, dtype=dtype, device=device), None, None
        return part.to(device).clone(), None, None


def _agreed(local: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The first rank's tensor along the axes on which it lies whole."""
    mesh = layout.mesh
    position = mesh.position(join().rank)
    assert position is not None
    along = [axis for axis, sbp in enumerate(layout.sbp) if sbp.kind == "B"]
    ranks = tuple(mesh.ranks[p] for p in peers(position, mesh.axes, along))
    if len(ranks) == 1 or local.numel() == 0:
        return local
    as_bytes = local.dtype == torch.bool
    with meet("to_global", tuple(sorted(ranks)), local.dtype, local.shape):
        found = collective.broadcast(local.view(torch.uint8) if as_bytes else local, ranks)
    return in_order_of(local, found.view(torch.bool) if as_bytes else found)


# ------------------------------------------------------------------ global to global


def relaid(tensor: GlobalTensor, place: placement | None, sbp: Any, grad_sbp: Any) -> GlobalTensor:
    """The same logical tensor on another placement, in another layout, or both. ``grad_sbp`` is how its gradient is
    laid before it goes on backwards."""
    spec = tensor._spec
    place = place if place is not None else placement.of(spec.device.type, spec.layout.mesh)
    if sbp is None and len(place._mesh.axes) != len(spec.sbp):
        raise GlobalTensorError(
            f"sbp is needed to bring a tensor that lies as {spec.layout} to {place}, which has other axes"
        )
    layout = layout_on(place, sbp if sbp is not None else list(map(public, spec.sbp)), len(spec.shape))
    back = layouts_of(grad_sbp, layout.mesh.axes) if grad_sbp is not None else None
    if layout == spec.layout and place.type == spec.device.type and back is None:
        return tensor
    return _Relaid.apply(tensor, layout, device_here(place), back)


class _Relaid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: GlobalTensor, layout: Layout, device: torch.device, back: Any) -> GlobalTensor:
        ctx.spec, ctx.layout, ctx.device, ctx.back = tensor._spec, layout, device, back
        return converted(tensor, layout, device)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """As it comes, unless the user says how; on another placement it lies as the tensor did there."""
        source: Spec = ctx.spec
        if ctx.back is not None:
            gradient = gradient_in(gradient, Layout(ctx.layout.mesh, ctx.back), ctx.device)
        if source.layout.mesh != ctx.layout.mesh or source.device.type != ctx.device.type:
            gradient = gradient_in(gradient, Layout(source.layout.mesh, without_sums(source.sbp)), source.device)
        return gradient, None, None, None


def converted(tensor: GlobalTensor, layout: Layout, device: torch.device) -> GlobalTensor:
    """The logical tensor in another layout, in memory of its own."""
    spec = tensor._spec
    part = moved(tensor._part, spec, layout)
    if part is not None and not join().is_planned:
        part = part.to(device)
        if tensor._part is not None and shares_memory(part, tensor._part):
            part = part.clone()
    return GlobalTensor(part, spec_of(spec.shape, spec.stride, spec.dtype, layout, device))


def gradient_in(gradient: Any, layout: Layout, device: torch.device) -> Any:
    """A gradient on a placement, in a layout. One that torch has made of zeros alone is a local tensor, the same on
    every rank."""
    if gradient is None:
        return None
    if not isinstance(gradient, GlobalTensor):
        values = torch.zeros(gradient.shape, dtype=gradient.dtype) if gradient._is_zerotensor() else gradient
        part = values.to(device) if layout.mesh.position(join().rank) is not None else None
        gradient = GlobalTensor(part, fresh(gradient.shape, gradient.dtype, whole_on(layout.mesh), device))
    is_there = gradient._spec.layout == layout and gradient._spec.device.type == device.type
    return gradient if is_there else converted(gradient, layout, device)


# ------------------------------------------------------------------ global to local


def to_local(tensor: GlobalTensor) -> torch.Tensor:
    """This rank's part: of a partial sum its own term, outside the placement an empty tensor."""
    return _ToLocal.apply(tensor) if tensor.requires_grad else _own_part(tensor)


def _own_part(tensor: GlobalTensor) -> torch.Tensor:
    part = tensor._part
    return torch.empty(tensor._spec.part(join().rank), dtype=tensor._spec.dtype) if part is None else part.view_as(part)


class _ToLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: GlobalTensor) -> torch.Tensor:
        ctx.spec = tensor._spec
        return _own_part(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        spec: Spec = ctx.spec
        layout = Layout(spec.layout.mesh, without_sums(spec.sbp))
        part = gradient if layout.mesh.position(join().rank) is not None else None
        return GlobalTensor(part, fresh(spec.shape, spec.dtype, layout, spec.device))


def gathered(tensor: GlobalTensor, name: str) -> torch.Tensor:
    """The logical tensor on every rank of the world, in memory of its own."""
    found = on_every_rank(tensor._part, tensor._spec, name)
    return found.clone() if tensor._part is not None and shares_memory(found, tensor._part) else found
