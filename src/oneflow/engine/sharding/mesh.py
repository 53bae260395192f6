"""Mesh (device mesh): the ranks of a placement, in order, with its axes; and how tensors lie on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.region import coordinates, region
from oneflow.engine.core.sbp import BROADCAST, Sbp

NdSbp = tuple[Sbp, ...]  # one Sbp for each axis of a mesh


@dataclass(frozen=True)
class Mesh:
    """``ranks[p]`` is the rank at position ``p``; ``axes`` are the extents of the placement's axes."""

    ranks: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.ranks)

    def position(self, rank: int) -> int | None:
        """Where a rank stands; None when it is not a member."""
        return self._positions.get(rank)

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {rank: position for position, rank in enumerate(self.ranks)}

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Worked out once: layouts are looked up all the time, and a mesh may have a thousand ranks."""
        return hash((self.ranks, self.axes))

    def __str__(self) -> str:
        ranks = (
            f"{self.ranks[0]}-{self.ranks[-1]}"
            if self.size > 1 and _is_range(self.ranks)
            else ",".join(map(str, self.ranks))
        )
        return f"[{ranks}]" if len(self.axes) == 1 else f"[{ranks} as {'x'.join(map(str, self.axes))}]"


def _is_range(ranks: tuple[int, ...]) -> bool:
    return ranks == tuple(range(ranks[0], ranks[0] + len(ranks)))


def mesh_of(placement: Placement, ranks: Mapping[tuple[int, int], int]) -> Mesh:
    """The mesh of a placement, given the rank of every (machine, device)."""
    missing = [f"{machine}:{device}" for machine, device in placement.devices if (machine, device) not in ranks]
    if missing:
        known = ", ".join(f"{machine}:{device}" for machine, device in ranks)
        raise ArgumentError(f"placement {placement} names {', '.join(missing)}; the devices configured are {known}")
    return Mesh(tuple(ranks[device] for device in placement.devices), placement.axes)


@dataclass(frozen=True)
class Layout:
    """Where a tensor lies and how: on every rank of ``mesh``, as ``sbp`` says."""

    mesh: Mesh
    sbp: NdSbp

    def block(self, shape: Sequence[int], rank: int) -> tuple[slice, ...] | None:
        """Where in a whole tensor a rank's part lies; None where it holds none."""
        position = self.mesh.position(rank)
        return (
            None
            if position is None
            else tuple(slice(*span) for span in region(shape, self.sbp, self.mesh.axes, position))
        )

    def is_first(self, rank: int) -> bool:
        """Whether a rank holds a part, and is the first of those that hold the same."""
        position = self.mesh.position(rank)
        if position is None:
            return False
        return not any(here for here, sbp in zip(coordinates(position, self.mesh.axes), self.sbp) if sbp.kind == "B")

    def __str__(self) -> str:
        return f"{', '.join(map(str, self.sbp))} on {self.mesh}"


def whole_on(mesh: Mesh) -> Layout:
    """The layout in which every rank of a mesh holds the whole tensor."""
    return Layout(mesh, (BROADCAST,) * len(mesh.axes))
