"""Emitters of aten ops that move, copy and cut elements. Views are values: a graph that writes through one was made
functional before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder, Size
from oneflow.engine.onnx.aten.family import AtenEmitters, pair, place
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()

_LAST = 2**63 - 1

for _name in ("view", "_unsafe_view", "reshape", "_reshape_alias"):
    # What the result's shape is was found when the graph was traced; the other arguments say nothing more.
    EMITTERS.add(f"{_name}.default", lambda b, x, size, *_: b.reshape_like(x, b.result), follows=["size", "_"])

for _name in ("squeeze.default", "squeeze.dim", "squeeze.dims"):
    EMITTERS.add(_name, lambda b, x, *_: b.reshape_like(x, b.result))

for _name in ("alias", "detach", "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "view_as"):
    EMITTERS.add(f"{_name}.default", lambda b, x, *_, **__: x)

EMITTERS.cannot(
    "it reads memory by strides, which ONNX does not know; write it with unfold, view or index",
    "as_strided.default",
    "set_.source_Storage",
)
EMITTERS.cannot("it reads the bits of one dtype as another's, which ONNX cannot; use .to(dtype)", "view.dtype")


@EMITTERS.row("_to_copy.default", "to.dtype", "to.dtype_layout", "type_as.default")
def to_copy(b: AtenBuilder, x: Operand, *_: Any, **__: Any) -> Wire:
    return b.cast(x, b.result.dtype)


@EMITTERS.row("copy.default")
def copy(b: AtenBuilder, x: Operand, source: Operand, non_blocking: bool = False) -> Wire:
    """The source in dtype and shape of x."""
    typed = b.cast(source, b.result.dtype)
    return typed if source.shape == x.shape else b.expand_like(typed, b.result)


@EMITTERS.row("permute.default")
def permute(b: AtenBuilder, x: Operand, dims: Sequence[int]) -> Wire:
    return b.transpose(x, [place(dim, x.rank) for dim in dims])


@EMITTERS.row("transpose.int")
def transpose(b: AtenBuilder, x: Operand, dim0: int, dim1: int) -> Wire:
    if not x.rank:
        return x
    perm, first, second = list(range(x.rank)), place(dim0, x.rank), place(dim1, x.rank)
    perm[first], perm[second] = second, first
    return b.transpose(x, perm)


@EMITTERS.row("t.default")
def t(b: AtenBuilder, x: Operand) -> Wire:
    return x if x.rank < 2 else b.transpose(x, [1, 0])


@EMITTERS.row("expand.default", follows=["size"])
def expand(b: AtenBuilder, x: Operand, size: Sequence[Size], *, implicit: bool = False) -> Wire:
    same = x.shape == b.result.shape and x.batch_dims == b.result.batch_dims
    return x if same else b.expand_like(x, b.result)


@EMITTERS.row("expand_as.default")
def expand_as(b: AtenBuilder, x: Operand, like: Operand) -> Wire:
    return b.expand_like(x, b.result)


@EMITTERS.row("unsqueeze.default")
def unsqueeze(b: AtenBuilder, x: Operand, dim: int) -> Wire:
    return b.unsqueeze(x, dim % (x.rank + 1))


@EMITTERS.row("cat.default")
def cat(b: AtenBuilder, tensors: list[Operand], dim: int = 0) -> Wire:
    """Empty vectors count for nothing, whatever the other ranks are."""
    parts = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    return b.node("Concat", *(b.cast(x, b.result.dtype) for x in parts), axis=place(dim, b.result.rank))


@EMITTERS.row("stack.default")
def stack(b: AtenBuilder, tensors: list[Operand], dim: int = 0) -> Wire:
    axis = dim % b.result.rank
    return b.node("Concat", *(b.unsqueeze(b.cast(x, b.result.dtype), axis) for x in tensors), axis=axis)


@EMITTERS.row(
    "split.Tensor",
    "split_with_sizes.default",
    "unsafe_split.Tensor",
    "unsafe_split_with_sizes.default",
    "chunk.default",
    follows=["sizes"],
)
def split(b: AtenBuilder, x: Operand, sizes: Any, dim: int = 0) -> list[Wire]:
    axis = place(dim, x.rank)
    return b.split(x, [b.sizes_of(part)[axis] for part in b.results], axis)


@EMITTERS.row("unbind.int")
def unbind(b: AtenBuilder, x: Operand, dim: int = 0) -> list[Wire]:
    x.size(place(dim, x.rank))  # as many results as it has slices
    return [b.gathered(x, i, place(dim, x.rank)) for i in range(len(b.results))]


@EMITTERS.row("slice.Tensor", follows=["start", "end"])
def slice_(
    b: AtenBuilder, x: Operand, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Wire:
    first, last = start or 0, _LAST if end is None else end
    if first == 0 and last == _LAST and step == 1:
        return x
    bounds = [b.vector([first]), b.vector([last])]
    return b.node("Slice", x, *bounds, b.ints([place(dim, x.rank)]), b.ints([step]))


@EMITTERS.row("select.int")
def select(b: AtenBuilder, x: Operand, dim: int, index: int) -> Wire:
    return b.gathered(x, index, place(dim, x.rank))


def _put(b: AtenBuilder, x: Operand, dim: int, places: range, source: Wire) -> Wire:
    """x with ``source`` at these places of a dim."""
    swapped = list(range(x.rank))
    swapped[0], swapped[dim] = dim, 0
    where = b.constant(torch.tensor(list(places), dtype=torch.int64).unsqueeze(1))
    return b.transpose(b.node("ScatterND", b.transpose(x, swapped), where, b.transpose(source, swapped)), swapped)


@EMITTERS.row("select_scatter.default")
def select_scatter(b: AtenBuilder, x: Operand, source: Operand, dim: int, index: int) -> Wire:
    axis = place(dim, x.rank)
    at = index % x.size(axis)
    return _put(b, x, axis, range(at, at + 1), b.unsqueeze(b.cast(source, x.dtype), axis))


@EMITTERS.row("slice_scatter.default")
def slice_scatter(
    b: AtenBuilder,
    x: Operand,
    source: Operand,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Wire:
    axis, typed = place(dim, x.rank), b.cast(source, x.dtype)
    if not start and (end is None or end >= x.shape[axis]) and step == 1:
        return typed
    return _put(b, x, axis, range(x.size(axis))[start:end:step], typed)


@EMITTERS.row("flip.default")
def flip(b: AtenBuilder, x: Operand, dims: Sequence[int]) -> Wire:
    return b.reverse(x, [place(dim, x.rank) for dim in dims])


@EMITTERS.row("roll.default")
def roll(b: AtenBuilder, x: Operand, shifts: Sequence[int], dims: Sequence[int] = ()) -> Wire:
    if not dims:
        flat = Operand(b.reshape(x, [-1]).name, x.dtype, (torch.Size(x.sizes()).numel(),))
        return b.reshape_like(roll(b, flat, shifts, [0]), x)
    rolled: Wire = x
    for shift, dim in zip(shifts, dims, strict=True):
        axis = place(dim, x.rank)
        cut = -shift % x.size(axis)
        rolled = (
            rolled
            if cut == 0
            else b.node("Concat", b.slice(rolled, axis, cut, _LAST), b.slice(rolled, axis, 0, cut), axis=axis)
        )
    return rolled


@EMITTERS.row("repeat.default", follows=["repeats"])
def repeat(b: AtenBuilder, x: Operand, repeats: Sequence[Size]) -> Wire:
    new = len(repeats) - x.rank
    wide = b.unsqueeze(x, *range(new)) if new else x
    return b.node("Tile", wide, b.vector(repeats))


@EMITTERS.row("repeat_interleave.self_int")
def repeat_interleave(
    b: AtenBuilder, x: Operand, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Wire:
    source = b.reshape(x, [-1]) if dim is None else x
    axis, rank = (0, 1) if dim is None else (place(dim, x.rank), x.rank)
    times = [1] * (rank + 1)
    times[axis + 1] = repeats
    return b.reshape_like(b.node("Tile", b.unsqueeze(source, axis + 1), b.ints(times)), b.result)


def _pads(rank: int, pad: Sequence[int]) -> list[int]:
    """torch tells pads from the last dim on, in pairs; ONNX what comes before each dim, then what comes after each."""
    before, after = [0] * rank, [0] * rank
    for i, (low, high) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        before[rank - 1 - i], after[rank - 1 - i] = low, high
    return before + after


@EMITTERS.row("constant_pad_nd.default")
def constant_pad(b: AtenBuilder, x: Operand, pad: Sequence[int], value: float = 0) -> Wire:
    return b.node("Pad", x, b.ints(_pads(x.rank, pad)), value, mode="constant")


def _pad(names: str, mode: str) -> None:
    for dims in (1, 2, 3):
        EMITTERS.add(
            f"{names}_pad{dims}d.default",
            lambda b, x, padding: b.node("Pad", x, b.ints(_pads(x.rank, padding)), mode=mode),
        )


_pad("reflection", "reflect")
_pad("replication", "edge")


@EMITTERS.row("pixel_shuffle.default")
def pixel_shuffle(b: AtenBuilder, x: Operand, upscale_factor: int) -> Wire:
    r = upscale_factor
    channels, h, w = x.sizes([x.rank - 3, x.rank - 2, x.rank - 1])
    blocks = b.reshape(x, [-1, channels // (r * r), r, r, h, w])
    return b.reshape_like(b.transpose(blocks, (0, 1, 4, 2, 5, 3)), b.result)


@EMITTERS.row("pixel_unshuffle.default")
def pixel_unshuffle(b: AtenBuilder, x: Operand, downscale_factor: int) -> Wire:
    r = downscale_factor
    channels, h, w = x.sizes([x.rank - 3, x.rank - 2, x.rank - 1])
    blocks = b.reshape(x, [-1, channels, h // r, r, w // r, r])
    return b.reshape_like(b.transpose(blocks, (0, 1, 3, 5, 2, 4)), b.result)


@EMITTERS.row("channel_shuffle.default", "native_channel_shuffle.default")
def channel_shuffle(b: AtenBuilder, x: Operand, groups: int) -> Wire:
    channels, *rest = x.sizes(range(1, x.rank))
    apart = b.reshape(x, [-1, groups, channels // groups, *rest])
    return b.reshape_like(b.transpose(apart, [0, 2, 1, *range(3, x.rank + 1)]), b.result)


@EMITTERS.row("unfold.default")
def unfold(b: AtenBuilder, x: Operand, dimension: int, size: int, step: int) -> Wire:
    """Windows along a dim, each laid out along a new last dim."""
    axis = place(dimension, x.rank)
    starts = torch.arange(0, x.size(axis) - size + 1, step)
    windows = b.node("Gather", x, b.constant(starts[:, None] + torch.arange(size)), axis=axis)
    return b.transpose(windows, [d for d in range(x.rank + 1) if d != axis + 1] + [axis + 1])


@EMITTERS.row("im2col.default")
def im2col(b: AtenBuilder, x: Operand, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Wire:
    """Windows of both dims by two gathers: (N, C, kh, oh, kw, ow), then the kernel's dims to the channels."""
    if x.rank != 4:
        raise UnsupportedError("unfold of a picture without a batch; give it one by unsqueeze(0)")
    kernel, gaps, pads, steps = (pair(value, 2) for value in (kernel_size, dilation, padding, stride))
    wide: Wire = b.node("Pad", x, b.ints([0, 0, *pads, 0, 0, *pads]), 0, mode="constant")
    counts = []
    for i, axis in ((0, 2), (1, 4)):
        count = (x.size(2 + i) + 2 * pads[i] - gaps[i] * (kernel[i] - 1) - 1) // steps[i] + 1
        counts.append(count)
        places = torch.arange(kernel[i])[:, None] * gaps[i] + torch.arange(count) * steps[i]
        wide = b.node("Gather", wide, b.constant(places), axis=axis)
    return b.reshape_like(b.transpose(wide, [0, 1, 2, 4, 3, 5]), b.result)


@EMITTERS.row("rot90.default")
def rot90(b: AtenBuilder, x: Operand, k: int = 1, dims: Sequence[int] = (0, 1)) -> Wire:
    """Quarter turns from the first dim to the second."""
    first, second = (place(dim, x.rank) for dim in dims)
    if k % 2 == 0:
        return b.reverse(x, [first, second] if k % 4 else [])
    perm = list(range(x.rank))
    perm[first], perm[second] = second, first
    return b.transpose(b.reverse(x, [second if k % 4 == 1 else first]), perm)


@EMITTERS.row("diag_embed.default")
def diag_embed(b: AtenBuilder, x: Operand, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Wire:
    """The last dim along a diagonal of two dims: gathered for every place of the matrix, and 0 beside the diagonal."""
    rank, count = b.result.rank, x.size(x.rank - 1)
    is_on, places = (
        torch.diag_embed(values, offset) for values in (torch.ones(count, dtype=torch.bool), torch.arange(count))
    )
    matrix = b.where(b.constant(is_on), b.node("Gather", x, b.constant(places), axis=x.rank - 1), b.wire(0, x.dtype))
    perm = list(range(rank - 2))
    for at, source in sorted([(place(dim1, rank), rank - 2), (place(dim2, rank), rank - 1)]):
        perm.insert(at, source)
    return b.transpose(matrix, perm)


@EMITTERS.row("diagonal.default")
def diagonal(b: AtenBuilder, x: Operand, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Wire:
    first, second = place(dim1, x.rank), place(dim2, x.rank)
    others = [d for d in range(x.rank) if d not in (first, second)]
    rows, columns = x.size(first), x.size(second)
    places = torch.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    sizes: list[Size] = [b.sizes_of(x)[d] for d in others]
    flat = b.node("Reshape", b.transpose(x, [*others, first, second]), b.vector([*sizes, rows * columns]))
    return b.node("Gather", flat, b.constant(places.contiguous()), axis=len(others))
