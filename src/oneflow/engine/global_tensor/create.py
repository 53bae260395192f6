"""Functions that make global tensors: those of torch, with ``placement=`` and ``sbp=``. Each rank makes its own
part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.core.region import coordinates, region
from oneflow.engine.global_tensor.members import converted, device_here, layout_on
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.random import Stream, require_no_sums
from oneflow.engine.global_tensor.spec import Spec, fresh
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.mesh import Layout, whole_on
from oneflow.engine.world import join

Slices = tuple[slice, ...]


def _spec(shape: Sequence[int], dtype: torch.dtype, place: Any, sbp: Any) -> Spec:
    if place is None or sbp is None:
        raise GlobalTensorError(
            f"a global tensor is made with placement= and sbp= together, got placement={place} and sbp={sbp}"
        )
    return fresh(shape, dtype, layout_on(place, sbp, len(shape)), device_here(place))


def _made(spec: Spec, part: Callable[[Sequence[int], Slices], torch.Tensor], requires_grad: bool) -> GlobalTensor:
    """A tensor whose part ``part(shape, where)`` makes; of a partial sum the first rank of each axis has the values,
    the others zeros."""
    mesh = spec.layout.mesh
    position = mesh.position(join().rank)
    local = None
    if position is not None:
        spans = region(spec.shape, spec.sbp, mesh.axes, position)
        if join().is_planned:
            return _leaf(
                GlobalTensor(
                    torch.empty([stop - start for start, stop in spans], dtype=spec.dtype, device="meta"), spec
                ),
                requires_grad,
            )
        local = part([stop - start for start, stop in spans], tuple(slice(*span) for span in spans))
        if any(sbp.kind == "P" for sbp in spec.sbp) and not _holds_sum(spec.layout):
            local.zero_()
    return _leaf(GlobalTensor(local, spec), requires_grad)


def _leaf(tensor: GlobalTensor, requires_grad: bool) -> GlobalTensor:
    if requires_grad:
        tensor.requires_grad_()
    return tensor


def _holds_sum(layout: Layout) -> bool:
    """Whether this rank is the first along all axes of partial sums."""
    position = layout.mesh.position(join().rank)
    assert position is not None
    return not any(here for here, sbp in zip(coordinates(position, layout.mesh.axes), layout.sbp) if sbp.kind == "P")


def _sizes(size: Sequence[Any]) -> tuple[int, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)) else tuple(size)


def _float(dtype: torch.dtype | None) -> torch.dtype:
    return dtype if dtype is not None else torch.get_default_dtype()


def _dtype_of(*numbers: Any) -> torch.dtype:
    return torch.int64 if all(isinstance(n, int) for n in numbers) else torch.get_default_dtype()


# ------------------------------------------------------------------ numbers that are known


def full(
    size: Sequence[int],
    fill_value: Any,
    *,
    dtype: Any = None,
    placement: placement,
    sbp: Any,
    requires_grad: bool = False,
) -> GlobalTensor:
    """A tensor of one number."""
    found = dtype or (torch.bool if isinstance(fill_value, bool) else _dtype_of(fill_value))
    spec = _spec(tuple(size) if not isinstance(size, int) else (size,), found, placement, sbp)
    return _made(spec, lambda shape, _: torch.full(shape, fill_value, dtype=found, device=spec.device), requires_grad)


def ones(*size: Any, dtype: Any = None, placement: placement, sbp: Any, requires_grad: bool = False) -> GlobalTensor:
    return full(_sizes(size), 1, dtype=_float(dtype), placement=placement, sbp=sbp, requires_grad=requires_grad)


def zeros(*size: Any, dtype: Any = None, placement: placement, sbp: Any, requires_grad: bool = False) -> GlobalTensor:
    return full(_sizes(size), 0, dtype=_float(dtype), placement=placement, sbp=sbp, requires_grad=requires_grad)


def empty(*size: Any, dtype: Any = None, placement: placement, sbp: Any, requires_grad: bool = False) -> GlobalTensor:
    spec = _spec(_sizes(size), _float(dtype), placement, sbp)
    return _made(spec, lambda shape, _: torch.empty(shape, dtype=spec.dtype, device=spec.device), requires_grad)


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    placement: placement,
    sbp: Any,
    requires_grad: bool = False,
) -> GlobalTensor:
    """The numbers from ``start`` to below ``end``; with one number, from 0 to below it."""
    first, last = (0, start) if end is None else (start, end)
    return from_whole(torch.arange(first, last, step, dtype=dtype), placement, sbp, requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: Any = None, placement: placement, sbp: Any, requires_grad: bool = False
) -> GlobalTensor:
    """Ones on the diagonal, zeros elsewhere."""
    spec = _spec((n, n if m is None else m), _float(dtype), placement, sbp)

    def part(shape: Sequence[int], where: Slices) -> torch.Tensor:
        rows, columns = (torch.arange(s.start, s.stop, device=spec.device) for s in where)
        return (rows[:, None] == columns).to(spec.dtype)

    return _made(spec, part, requires_grad)


def tensor(
    data: Any, *, dtype: Any = None, placement: placement, sbp: Any, requires_grad: bool = False
) -> GlobalTensor:
    """A tensor of data, all of which every rank passes."""
    return from_whole(torch.tensor(data, dtype=dtype), placement, sbp, requires_grad)


def from_whole(values: torch.Tensor, placement: placement, sbp: Any, requires_grad: bool = False) -> GlobalTensor:
    """A tensor of values that every rank has."""
    spec = _spec(values.shape, values.dtype, placement, sbp)
    return _made(spec, lambda _, where: values[where].to(spec.device).clone(), requires_grad)


# ------------------------------------------------------------------ random numbers


def _random(spec: Spec, generator: Any, values: Callable[[Stream], torch.Tensor], requires_grad: bool) -> GlobalTensor:
    stream = Stream(spec, generator)
    return _made(spec, lambda _, __: values(stream).to(spec.dtype), requires_grad)


def rand(
    *size: Any, dtype: Any = None, generator: Any = None, placement: placement, sbp: Any, requires_grad: bool = False
) -> GlobalTensor:
    """Between 0 and 1; the same logical tensor for every layout."""
    return _random(_spec(_sizes(size), _float(dtype), placement, sbp), generator, Stream.uniform, requires_grad)


def randn(
    *size: Any, dtype: Any = None, generator: Any = None, placement: placement, sbp: Any, requires_grad: bool = False
) -> GlobalTensor:
    """Of mean 0 and standard deviation 1; the same logical tensor for every layout."""
    return _random(_spec(_sizes(size), _float(dtype), placement, sbp), generator, Stream.normal, requires_grad)


def normal(
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    dtype: Any = None,
    generator: Any = None,
    placement: placement,
    sbp: Any,
    requires_grad: bool = False,
) -> GlobalTensor:
    spec = _spec(tuple(size), _float(dtype), placement, sbp)
    return _random(spec, generator, lambda stream: stream.normal() * std + mean, requires_grad)


def randint(
    low: int,
    high: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    generator: Any = None,
    placement: placement,
    sbp: Any,
    requires_grad: bool = False,
) -> GlobalTensor:
    """Whole numbers from ``low`` to below ``high``; ``randint(high, size)`` from 0."""
    if size is None:
        low, high, size = 0, low, high
    if high <= low:
        raise GlobalTensorError(f"randint gives numbers from low to below high, got low={low} and high={high}")
    spec = _spec(tuple(size), dtype or torch.int64, placement, sbp)
    return _random(spec, generator, lambda stream: stream.whole(low, high), requires_grad)


def randperm(
    n: int, *, dtype: Any = None, generator: Any = None, placement: placement, sbp: Any, requires_grad: bool = False
) -> GlobalTensor:
    """The numbers from 0 to below ``n`` in random order: that of random keys, which every rank makes of all of them."""
    spec = _spec((n,), dtype or torch.int64, placement, sbp)
    require_no_sums(spec)
    layout = whole_on(spec.layout.mesh)
    stream = Stream(fresh((n,), torch.int64, layout, spec.device), generator)
    keys = stream.whole(0, 1 << 62)
    part = keys.argsort(stable=True).to(spec.dtype) if layout.mesh.position(join().rank) is not None else None
    made = GlobalTensor(part, fresh((n,), spec.dtype, layout, spec.device))
    return _leaf(converted(made, spec.layout, spec.device), requires_grad)
