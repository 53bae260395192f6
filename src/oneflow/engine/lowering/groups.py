"""Which process groups the programs of a job need. Every rank finds the same ones in the same order, and lowers few
programs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, combinations

import oneflow.engine.collective as collective
from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.core.region import peers
from oneflow.engine.program.program import Program
from oneflow.engine.sharding.mesh import Mesh

Ranks = tuple[int, ...]


def process_groups(assigned: Assigned, lowered: Callable[[int], Program]) -> list[Ranks]:
    """The groups of ranks that collectives of the job are among. The ranks of a mesh make the same calls along the same
    axes, so the program of one of them, which ``lowered`` gives, speaks for all."""
    meshes = [mesh for mesh in assigned.meshes if mesh.size > 1]
    found: dict[Ranks, None] = {}
    for mesh in meshes:
        rank = mesh.ranks[0]
        for group in _groups(lowered(rank)):
            found.update(dict.fromkeys(_alike(group, rank, meshes)))
    return list(found)


def _groups(program: Program) -> list[Ranks]:
    """Those of one program, in the order of their first use."""
    calls = [
        node for section in program.sections.values() for node in section.graph.nodes if node.op == "call_function"
    ]
    return list(
        dict.fromkeys(ranks for node in calls for ranks in collective.groups_in(node.target, node.args, node.kwargs))
    )


def _alike(group: Ranks, rank: int, meshes: list[Mesh]) -> Iterator[Ranks]:
    """The groups that other ranks are in where this one is in ``group``: along the same axes of the same mesh, and of
    any mesh that has it."""
    yield group
    for mesh in meshes:
        position = mesh.position(rank)
        if position is None:
            continue
        for axes in chain.from_iterable(combinations(range(len(mesh.axes)), n + 1) for n in range(len(mesh.axes))):
            if _along(mesh, position, axes) == group:
                yield from (_along(mesh, p, axes) for p in range(mesh.size))
                break


def _along(mesh: Mesh, position: int, axes: tuple[int, ...]) -> Ranks:
    return tuple(mesh.ranks[p] for p in peers(position, mesh.axes, axes))
