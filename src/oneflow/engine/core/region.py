"""Which part of a tensor a rank holds: pure arithmetic on shapes, splits and axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from oneflow.engine.core.sbp import Sbp

Region = tuple[tuple[int, int], ...]


def span(size: int, parts: int, index: int) -> tuple[int, int]:
    """Where the part ``index`` of ``size`` elements begins and ends; the first parts have one more where it does not
    come out even."""
    base, more = divmod(size, parts)
    start = index * base + min(index, more)
    return start, start + base + (index < more)


def coordinates(position: int, axes: Sequence[int]) -> tuple[int, ...]:
    """The place of a rank on each axis of a placement; the last axis varies fastest."""
    found = []
    for extent in reversed(axes):
        position, here = divmod(position, extent)
        found.append(here)
    return tuple(reversed(found))


def position_of(place: Sequence[int], axes: Sequence[int]) -> int:
    """The inverse of ``coordinates``."""
    position = 0
    for here, extent in zip(place, axes):
        position = position * extent + here
    return position


def peers(position: int, axes: Sequence[int], along: Sequence[int]) -> tuple[int, ...]:
    """The positions that differ from ``position`` only on the axes ``along``, itself included, in order."""
    mine = coordinates(position, axes)
    places = product(*(range(extent) if axis in along else (mine[axis],) for axis, extent in enumerate(axes)))
    return tuple(position_of(place, axes) for place in places)


def region(shape: Sequence[int], sbp: Sequence[Sbp], axes: Sequence[int], position: int) -> Region:
    """The start and end, in each dim, of what a rank holds. Axes that split one dim divide it one after the other."""
    spans = [(0, size) for size in shape]
    for here, extent, layout in zip(coordinates(position, axes), axes, sbp):
        if layout.kind == "S":
            assert layout.dim is not None
            start, stop = spans[layout.dim]
            first, last = span(stop - start, extent, here)
            spans[layout.dim] = (start + first, start + last)
    return tuple(spans)


def local_shape(shape: Sequence[int], sbp: Sequence[Sbp], axes: Sequence[int], position: int) -> tuple[int, ...]:
    """The shape of what a rank holds."""
    return tuple(stop - start for start, stop in region(shape, sbp, axes, position))
