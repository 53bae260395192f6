"""Boxing (resharding, redistribution): what a rank does to change how a value lies. On one mesh axis by axis; from mesh
to mesh block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

import oneflow.engine.collective as collective
from oneflow.engine.collective import Piece
from oneflow.engine.core.region import Region, coordinates, peers, region
from oneflow.engine.core.sbp import BROADCAST, Sbp
from oneflow.engine.sharding.mesh import Layout, Mesh, NdSbp

Shape = tuple[int, ...]
_V = TypeVar("_V")
Emit = Callable[[Any, tuple[Any, ...], Layout, Layout], _V]
"""``emit(function, args, source, target)`` makes a call of a rank: adds it to a graph, or runs it at once. Values among
the arguments are those it gave. The call is there to bring a value from one layout to the other."""


@dataclass(frozen=True)
class Crossing:
    """How a value goes from one mesh to another: under a ``tag`` that no other has meanwhile, onto ``device``. One that
    is ``written`` before it has arrived is copied first, since sending does not wait."""

    tag: int
    device: str
    written: bool = False


def box(
    emit: Emit[_V],
    rank: int,
    value: _V | None,
    shape: Shape,
    dtype: torch.dtype,
    source: Layout,
    target: Layout,
    crossing: Crossing | None = None,
) -> _V | None:
    """Makes the calls by which ``rank`` brings its part of a tensor of a logical ``shape`` and ``dtype`` from one
    layout to another; the part it then has, None if it has none. Every rank of both meshes must do so, in one order. To
    another mesh it takes a ``crossing``."""
    here = _Rank(emit, rank, shape)
    if source.mesh == target.mesh:
        return here.on_one_mesh(value, source, target.sbp)
    assert crossing is not None, f"a value goes from {source} to {target}, another mesh, and needs a crossing"
    left, arrived = without_partial(source), without_partial(target)
    sent = here.on_one_mesh(value, source, left.sbp)
    moved = transfer(shape, left, arrived, rank)
    if moved.is_idle:
        return None
    if moved.outgoing and crossing.written:
        sent = emit(torch.ops.aten.clone.default, (sent,), source, target)
    args = sent, moved.shape, dtype, moved.outgoing, moved.incoming, crossing.tag, crossing.device
    received = emit(collective.exchange, args, source, target)
    return here.on_one_mesh(received, arrived, target.sbp) if moved.shape is not None else None


def without_partial(layout: Layout) -> Layout:
    """As a value goes to another mesh: partial sums are summed before."""
    return Layout(layout.mesh, tuple(BROADCAST if sbp.kind == "P" else sbp for sbp in layout.sbp))


@dataclass(frozen=True)
class _Rank(Generic[_V]):
    """One rank's side of changes of layout on one mesh."""

    emit: Emit[_V]
    rank: int
    shape: Shape

    def on_one_mesh(self, local: _V | None, source: Layout, target: NdSbp) -> _V | None:
        if local is None:
            return None
        position = source.mesh.position(self.rank)
        assert position is not None, f"rank {self.rank} has a value that lies as {source}"
        now, local = self._summed(local, source, target, position)
        for move in moves(now, target):
            local = self._moved(local, move, source.mesh, position)
        return local

    def _summed(self, local: _V, source: Layout, target: NdSbp, position: int) -> tuple[NdSbp, _V]:
        """A sum over several axes is one sum over all their ranks: half the bytes of one after the other."""
        mesh = source.mesh
        along = [
            axis
            for axis, (a, b) in enumerate(zip(source.sbp, target))
            if a.kind == "P" and b.kind == "B" and mesh.axes[axis] > 1
        ]
        if len(along) < 2:
            return source.sbp, local
        after = tuple(BROADCAST if axis in along else sbp for axis, sbp in enumerate(source.sbp))
        ranks = tuple(mesh.ranks[p] for p in peers(position, mesh.axes, along))
        return after, self.emit(collective.all_reduce, (local, "sum", ranks), source, Layout(mesh, after))

    def _moved(self, local: _V, move: Move, mesh: Mesh, position: int) -> _V:
        if mesh.axes[move.axis] == 1:
            return local
        function, args = _call(move, self.shape, mesh, position)
        return self.emit(function, (local, *args), Layout(mesh, move.before), Layout(mesh, move.after))


@dataclass(frozen=True)
class Move:
    """A change of layout along one axis of a mesh."""

    axis: int
    source: Sbp
    target: Sbp
    before: NdSbp

    @property
    def after(self) -> NdSbp:
        return tuple(self.target if axis == self.axis else sbp for axis, sbp in enumerate(self.before))


def moves(source: NdSbp, target: NdSbp) -> Iterator[Move]:
    """The changes, one axis at a time, that lead from one layout to another.

    Where two axes split one dim, the part of the inner axis is a part of the outer one's: the inner is made whole
    first.
    """
    now = list(source)

    def move(axis: int, to: Sbp) -> Iterator[Move]:
        if now[axis] is not to:
            yield Move(axis, now[axis], to, tuple(now))
            now[axis] = to

    for axis in reversed(range(len(now))):
        if now[axis].kind == "S" and _must_be_whole(axis, now, target):
            yield from move(axis, BROADCAST)
    for axis in range(len(now)):
        yield from move(axis, target[axis])


def _must_be_whole(axis: int, now: Sequence[Sbp], target: NdSbp) -> bool:
    """Whether a split must be undone before anything else: another axis splits, or is to split, one of the dims it
    splits before or after."""
    mine = (
        {sbp.dim for sbp in (now[axis], target[axis]) if sbp.kind == "S"}
        if now[axis] is not target[axis]
        else {now[axis].dim}
    )
    others = range(len(now)) if now[axis] is not target[axis] else [a for a in range(axis) if now[a] is not target[a]]
    return any(sbp.dim in mine for a in others if a != axis for sbp in (now[a], target[a]) if sbp.kind == "S")


def extents(shape: Shape, sbp: NdSbp, mesh: Mesh, position: int, axis: int, dim: int) -> Shape:
    """How long, along ``dim``, the parts of the members of this rank's group on ``axis`` are."""
    spans = [region(shape, sbp, mesh.axes, p)[dim] for p in peers(position, mesh.axes, (axis,))]
    return tuple(stop - start for start, stop in spans)


def split_extents(shape: Shape, move: Move, mesh: Mesh, position: int) -> Shape:
    """The parts along the target's dim when this move has been made."""
    assert move.target.dim is not None
    return extents(shape, move.after, mesh, position, move.axis, move.target.dim)


def _call(move: Move, shape: Shape, mesh: Mesh, position: int) -> tuple[Any, tuple[Any, ...]]:
    """What the rank at ``position`` calls to make a move, and with what besides its value."""
    ranks = tuple(mesh.ranks[p] for p in peers(position, mesh.axes, (move.axis,)))
    place = coordinates(position, mesh.axes)[move.axis]
    source, target = move.source, move.target
    parts = extents(shape, move.before, mesh, position, move.axis, source.dim) if source.dim is not None else ()
    after = split_extents(shape, move, mesh, position) if target.dim is not None else ()
    match source.kind, target.kind:
        case "P", "B":
            return collective.all_reduce, ("sum", ranks)
        case "P", "S":
            return collective.reduce_parts, (target.dim, after, ranks)
        case "S", "B":
            return collective.gather_parts, (source.dim, parts, ranks)
        case "S", "S":
            return collective.exchange_parts, (source.dim, target.dim, parts, after, ranks)
        case "B", "S":
            return collective.part_of, (target.dim, after, place)
        case "S", "P":
            return collective.part_as_partial, (source.dim, parts, place)
    return collective.as_partial, (place == 0,)


@dataclass(frozen=True)
class Transfer:
    """What one rank does to bring a value from one layout to another mesh: blocks to send, blocks to receive, the shape
    it then holds."""

    outgoing: tuple[Piece, ...]
    incoming: tuple[Piece, ...]
    shape: Shape | None

    @property
    def is_idle(self) -> bool:
        return not self.outgoing and self.shape is None


def transfer(shape: Shape, source: Layout, target: Layout, rank: int) -> Transfer:
    """The part of ``rank`` in a transfer. Neither layout has partial sums. A block that several ranks hold comes from
    the rank itself if it can, else from one of them in turn."""
    holders: dict[Region, list[int]] = {}
    for position in range(source.mesh.size):
        holders.setdefault(region(shape, source.sbp, source.mesh.axes, position), []).append(
            source.mesh.ranks[position]
        )
    outgoing: list[Piece] = []
    incoming: list[Piece] = []
    mine = source.mesh.position(rank)
    here = region(shape, source.sbp, source.mesh.axes, mine) if mine is not None else ()
    held: Shape | None = None
    own = {here: holders[here]} if mine is not None else {}
    for position, receiver in enumerate(target.mesh.ranks):
        need = region(shape, target.sbp, target.mesh.axes, position)
        if receiver == rank:
            held = tuple(stop - start for start, stop in need)
        for block, members in (holders if receiver == rank else own).items():  # to others only what it holds itself
            common = _common(block, need)
            sender = receiver if receiver in members else members[position % len(members)]
            if common is None or rank not in (sender, receiver):
                continue
            if sender == rank:
                outgoing.append(_piece(receiver, common, here))
            if receiver == rank:
                incoming.append(_piece(sender, common, need))
    return Transfer(tuple(outgoing), tuple(incoming), held)


def _common(a: Region, b: Region) -> Region | None:
    found = tuple((max(first, other), min(last, end)) for (first, last), (other, end) in zip(a, b))
    return found if all(start < stop for start, stop in found) else None


def _piece(rank: int, block: Region, inside: Region) -> Piece:
    starts = tuple(start - base for (start, _), (base, _) in zip(block, inside))
    return Piece(rank, starts, tuple(stop - start for start, stop in block))
