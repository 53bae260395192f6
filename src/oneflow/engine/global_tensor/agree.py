"""What ranks tell each other of the local tensors that they make one global tensor of, and what that tensor then is."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import oneflow.engine.collective as collective
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.core.region import coordinates, local_shape
from oneflow.engine.sharding.mesh import Layout
from oneflow.engine.world import join
from oneflow.engine.world.order import meet

Shape = tuple[int, ...]
_DTYPES = (
    *(
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
    ),
    *(torch.bool, torch.complex64, torch.complex128),
)
_MOST_DIMS = 12


def told(local: torch.Tensor) -> list[tuple[torch.dtype, Shape]]:
    """Dtype and shape of every rank's local tensor, by rank; all ranks of the world come here."""
    if local.dtype not in _DTYPES or local.dim() > _MOST_DIMS:
        raise GlobalTensorError(f"no global tensor is made of {local.dim()} dims of {local.dtype}")
    world = join()
    if world.size == 1 or world.is_planned:
        return [(local.dtype, tuple(local.shape))] * world.size
    mine = [_DTYPES.index(local.dtype), local.dim(), *local.shape, *[0] * (_MOST_DIMS - local.dim())]
    with meet("to_global", world.ranks):
        rows = collective.all_gather(torch.tensor(mine), world.ranks).tolist()
    return [(_DTYPES[row[0]], tuple(row[2 : 2 + row[1]])) for row in rows]


def logical(facts: Sequence[tuple[torch.dtype, Shape]], layout: Layout) -> tuple[torch.dtype, Shape]:
    """Dtype and shape of the tensor whose parts the ranks of a layout have. Every rank sees the same facts, so all
    raise or none."""
    members = [facts[rank] for rank in layout.mesh.ranks]
    dtypes = list(dict.fromkeys(dtype for dtype, _ in members))
    if len(dtypes) > 1:
        raise GlobalTensorError(
            f"the local tensors of one global tensor have one dtype, the ranks have {_listed(dtypes)}"
        )
    shapes = [shape for _, shape in members]
    if len({len(shape) for shape in shapes}) > 1:
        raise GlobalTensorError(
            f"the local tensors of one global tensor have equally many dims, the ranks have shapes {_listed(shapes)}"
        )
    highest = max((sbp.dim for sbp in layout.sbp if sbp.dim is not None), default=-1)
    if highest >= len(shapes[0]):
        raise GlobalTensorError(f"a tensor of {len(shapes[0])} dims cannot be split along dim {highest}")
    if layout.mesh.size == 1:
        return dtypes[0], shapes[0]
    whole = tuple(_extent(shapes, layout, dim) for dim in range(len(shapes[0])))
    _require_parts(shapes, whole, layout)
    return dtypes[0], whole


def _extent(shapes: Sequence[Shape], layout: Layout, dim: int) -> int:
    """The sum over the places of the axes that split a dim, at the first place of all others."""
    splitting = [axis for axis, sbp in enumerate(layout.sbp) if sbp.dim == dim]
    places = [coordinates(position, layout.mesh.axes) for position in range(layout.mesh.size)]
    return sum(
        shape[dim]
        for shape, place in zip(shapes, places)
        if not any(here for axis, here in enumerate(place) if axis not in splitting)
    )


def _require_parts(shapes: Sequence[Shape], whole: Shape, layout: Layout) -> None:
    expected = [local_shape(whole, layout.sbp, layout.mesh.axes, position) for position in range(layout.mesh.size)]
    if list(shapes) != expected:
        raise GlobalTensorError(
            f"the local tensors are no balanced split of one tensor as {layout}: the ranks have shapes "
            f"{_listed(shapes)}, "
            f"the parts of a tensor of shape {whole} are {_listed(expected)}"
        )


def _listed(values: Sequence[object]) -> str:
    shown = [str(value) for value in values[:8]]
    return ", ".join(shown) + (f" and {len(values) - 8} more" if len(values) > 8 else "")
