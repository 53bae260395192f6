"""Boxing: from any layout to any other, on one mesh axis by axis, between meshes block by block. All ranks in one
process."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from oneflow.engine.core.region import local_shape, peers, region
from oneflow.engine.core.sbp import BROADCAST, PARTIAL, split
from oneflow.engine.sharding.boxing import Move, moves, split_extents, transfer
from oneflow.engine.sharding.mesh import Layout, Mesh, NdSbp

SHAPE = (7, 6)
LAYOUTS = (BROADCAST, PARTIAL, split(0), split(1))


def scattered(whole: np.ndarray, sbp: NdSbp, mesh: Mesh) -> list[np.ndarray]:
    """What each position holds of a tensor; partial sums are any numbers that add up to it."""
    found = []
    for position in range(mesh.size):
        part = whole[tuple(slice(*span) for span in region(whole.shape, sbp, mesh.axes, position))].copy()
        partial = [axis for axis, layout in enumerate(sbp) if layout is PARTIAL]
        group = peers(position, mesh.axes, partial)
        others = sum(weight(p) for p in group if p != group[0])
        found.append(part * (1 - others if position == group[0] else weight(position)) if partial else part)
    return found


def weight(position: int) -> float:
    return 0.5 + position


def assert_lies(parts: list[np.ndarray], whole: np.ndarray, sbp: NdSbp, mesh: Mesh) -> None:
    partial = [axis for axis, layout in enumerate(sbp) if layout is PARTIAL]
    for position in range(mesh.size):
        expected = whole[tuple(slice(*span) for span in region(whole.shape, sbp, mesh.axes, position))]
        total = sum(parts[p] for p in peers(position, mesh.axes, partial)) if partial else parts[position]
        np.testing.assert_allclose(total, expected, 1e-9, 1e-9)


def moved(parts: list[np.ndarray], move: Move, mesh: Mesh) -> list[np.ndarray]:
    """One move of all ranks, by what its collective is said to do."""
    found = []
    for position, mine in enumerate(parts):
        group = peers(position, mesh.axes, (move.axis,))
        place = group.index(position)
        sizes = split_extents(SHAPE, move, mesh, position) if move.target.kind == "S" else ()
        whole = combined([parts[p] for p in group], mine, move)
        if move.target.kind == "B":
            found.append(whole)
        elif move.target.kind == "P":
            found.append(whole if place == 0 else np.zeros_like(whole))
        else:
            found.append(np.split(whole, np.cumsum(sizes)[:-1], move.target.dim)[place])
    return found


def combined(group: list[np.ndarray], mine: np.ndarray, move: Move) -> np.ndarray:
    if move.source.kind == "B":
        return mine
    return np.sum(group, 0) if move.source.kind == "P" else np.concatenate(group, move.source.dim)


@pytest.mark.parametrize("axes", [(2,), (3,), (2, 2), (2, 3), (3, 2)], ids=str)
def test_moves_lead_from_any_layout_to_any_other(axes: tuple[int, ...]) -> None:
    """Also where both axes split one dim."""
    mesh = Mesh(tuple(range(int(np.prod(axes)))), axes)
    whole = np.random.default_rng(0).normal(size=SHAPE)
    for source, target in product(product(LAYOUTS, repeat=len(axes)), repeat=2):
        parts, now = scattered(whole, source, mesh), list(source)
        for move in moves(source, target):
            assert (tuple(now), now[move.axis]) == (move.before, move.source)
            parts = moved(parts, move, mesh)
            now[move.axis] = move.target
            assert_lies(parts, whole, tuple(now), mesh)
        assert tuple(now) == target


def test_moves_change_an_axis_once_unless_both_split_one_dim() -> None:
    for source, target in product(product(LAYOUTS, repeat=2), repeat=2):
        dims = [layout.dim for layout in (*source, *target) if layout.dim is not None]
        changed = sum(a is not b for a, b in zip(source, target))
        count = len(list(moves(source, target)))
        assert count == changed if len(set(dims)) == len(dims) else count >= changed
    assert not list(moves((split(0), split(0)), (split(0), split(0))))


def random_layout(choose: random.Random, ranks: int) -> Layout:
    members = choose.sample(range(ranks), choose.choice([1, 2, 3, 4, 6]))
    shapes = {1: [(1,)], 2: [(2,), (1, 2)], 3: [(3,)], 4: [(4,), (2, 2)], 6: [(6,), (2, 3), (3, 2)]}
    axes = choose.choice(shapes[len(members)])
    return Layout(Mesh(tuple(members), axes), tuple(choose.choice([BROADCAST, split(0), split(1)]) for _ in axes))


@pytest.mark.parametrize("seed", range(200))
def test_a_transfer_brings_every_element_once(seed: int) -> None:
    """From any mesh to any other, overlapping, disjoint or a part of it; what is sent is what is awaited."""
    choose = random.Random(seed)
    source, target = random_layout(choose, 7), random_layout(choose, 7)
    whole = np.arange(42.0).reshape(SHAPE)
    sides = {rank: transfer(SHAPE, source, target, rank) for rank in range(7)}
    held = {rank: scattered(whole, source.sbp, source.mesh)[p] for p, rank in enumerate(source.mesh.ranks)}
    for rank, side in sides.items():
        position = target.mesh.position(rank)
        assert side.shape == (
            local_shape(SHAPE, target.sbp, target.mesh.axes, position) if position is not None else None
        )
        assert side.is_idle == (position is None and not side.outgoing)
        if side.shape is None:
            assert not side.incoming
            continue
        arrived, count = np.zeros(side.shape), np.zeros(side.shape)
        queues = {other: [p for p in sides[other].outgoing if p.rank == rank] for other in sides}
        for piece in side.incoming:
            block = queues[piece.rank].pop(0)  # between two ranks, blocks come in the order they are sent
            assert block.shape == piece.shape
            into = tuple(slice(start, start + size) for start, size in zip(piece.start, piece.shape))
            out_of = tuple(slice(start, start + size) for start, size in zip(block.start, block.shape))
            arrived[into] += held[piece.rank][out_of]
            count[into] += 1
        assert not any(queues.values()) and np.all(count == 1)
        expected = whole[tuple(slice(*span) for span in region(SHAPE, target.sbp, target.mesh.axes, position))]
        np.testing.assert_array_equal(arrived, expected)


def test_what_a_rank_has_already_is_not_sent() -> None:
    source, target = Layout(Mesh((0, 1, 2), (3,)), (BROADCAST,)), Layout(Mesh((1, 2, 3), (3,)), (BROADCAST,))
    sent = [
        (rank, piece.rank)
        for rank in range(4)
        for piece in transfer(SHAPE, source, target, rank).outgoing
        if piece.rank != rank
    ]
    assert len(sent) == 1 and sent[0][1] == 3
