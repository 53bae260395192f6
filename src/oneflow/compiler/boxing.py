"""Boxing: the nodes that change how a value lies. On one mesh axis by axis; from mesh to mesh block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oneflow.compiler.mesh import Layout, Mesh, NdSbp
from oneflow.core.layout import Region, coordinates, peers, region
from oneflow.core.sbp import BROADCAST, Sbp
from oneflow.collective import Piece

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """A change of layout along one axis of a mesh."""

    axis: int
    source: Sbp
    target: Sbp
    before: NdSbp


def moves(source: NdSbp, target: NdSbp) -> Iterator[Move]:
    """The changes, one axis at a time, that lead from one layout to another.

    Where two axes split one dim, the part of the inner axis is a part of the outer one's: the inner is made whole first.
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
    """Whether a split must be undone before anything else: another axis splits, or is to split, one of the dims it splits before or after."""
    mine = {sbp.dim for sbp in (now[axis], target[axis]) if sbp.kind == "S"} if now[axis] is not target[axis] else {now[axis].dim}
    others = range(len(now)) if now[axis] is not target[axis] else [a for a in range(axis) if now[a] is not target[a]]
    return any(sbp.dim in mine for a in others if a != axis for sbp in (now[a], target[a]) if sbp.kind == "S")


def extents(shape: Shape, sbp: NdSbp, mesh: Mesh, position: int, axis: int, dim: int) -> Shape:
    """How long, along ``dim``, the parts of the members of this rank's group on ``axis`` are."""
    spans = [region(shape, sbp, mesh.axes, p)[dim] for p in peers(position, mesh.axes, (axis,))]
    return tuple(stop - start for start, stop in spans)


def split_extents(shape: Shape, move: Move, mesh: Mesh, position: int) -> Shape:
    """The parts along the target's dim when this move has been made."""
    after = tuple(move.target if a == move.axis else sbp for a, sbp in enumerate(move.before))
    assert move.target.dim is not None
    return extents(shape, after, mesh, position, move.axis, move.target.dim)


@dataclass(frozen=True)
class Transfer:
    """What one rank does to bring a value from one layout to another mesh: blocks to send, blocks to receive, the shape it then holds."""

    outgoing: tuple[Piece, ...]
    incoming: tuple[Piece, ...]
    shape: Shape | None

    @property
    def is_idle(self) -> bool:
        return not self.outgoing and self.shape is None


def transfer(shape: Shape, source: Layout, target: Layout, rank: int) -> Transfer:
    """The part of ``rank`` in a transfer. Neither layout has partial sums. A block that several ranks hold comes from the rank itself if it
    can, else from one of them in turn."""
    holders: dict[Region, list[int]] = {}
    for position in range(source.mesh.size):
        holders.setdefault(region(shape, source.sbp, source.mesh.axes, position), []).append(source.mesh.ranks[position])
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


def place_on(mesh: Mesh, position: int, axis: int) -> int:
    """The place of a position in its group along an axis."""
    return coordinates(position, mesh.axes)[axis]
