"""Which ranks of a job cost the same: those that hold parts of the same shapes and send the same blocks to other
placements."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from functools import cache
from typing import Any

from torch import fx

from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.assignment.storage import update_layout
from oneflow.engine.core.region import coordinates
from oneflow.engine.program.calls import tensor_arguments
from oneflow.engine.program.notes import joint_note, layout_of, val
from oneflow.engine.sharding.boxing import transfer, without_partial
from oneflow.engine.sharding.mesh import Layout, Mesh, NdSbp

Shape = tuple[int, ...]
Use = tuple[Shape, Layout]


def alike(assigned: Assigned) -> list[list[int]]:
    """The ranks of a job in classes that cost the same."""
    uses = _uses(assigned)
    meshes = {mesh: _cuts(mesh, [use for use in uses if use[1].mesh == mesh]) for mesh in assigned.meshes}
    sends = _sends(assigned)
    classes: dict[Any, list[int]] = {}
    for rank in assigned.ranks:
        places = tuple(_place(mesh, cuts, rank) for mesh, cuts in meshes.items())
        classes.setdefault((places, sends(rank)), []).append(rank)
    return list(classes.values())


def _place(mesh: Mesh, cuts: list[list[int]], rank: int) -> Shape | None:
    position = mesh.position(rank)
    if position is None:
        return None
    return tuple(bisect(of_axis, here) for of_axis, here in zip(cuts, coordinates(position, mesh.axes)))


def _cuts(mesh: Mesh, uses: list[Use]) -> list[list[int]]:
    """For each axis the places where parts become smaller."""
    cuts: list[set[int]] = [set() for _ in mesh.axes]
    for shape, layout in uses:
        for axis, sbp in enumerate(layout.sbp):
            if sbp.dim is not None:
                sizes = _sizes(shape[sbp.dim], layout.sbp[:axis], mesh.axes, sbp.dim)
                cuts[axis].update(size % mesh.axes[axis] for size in sizes)
    return [sorted(of_axis - {0}) for of_axis in cuts]


def _sizes(size: int, before: NdSbp, axes: Shape, dim: int) -> set[int]:
    """How long a dim may be once the axes before have split it."""
    sizes = {size}
    for sbp, extent in zip(before, axes):
        if sbp.dim == dim:
            sizes = {part for whole in sizes for part in (whole // extent, -(-whole // extent))}
    return sizes


def _uses(assigned: Assigned) -> set[Use]:
    """Every shape with every layout that a value is made in or read in."""
    found: set[Use] = set()
    for node in assigned.graph.nodes:
        note, value = joint_note(node), val(node)
        mesh = note.placed
        if note.signatures:
            values = value if isinstance(value, (tuple, list)) else [value]
            found.update((tuple(v.shape), Layout(mesh, sbp)) for v, sbp in zip(values, note.outputs) if v is not None)
            found.update((tuple(val(read).shape), layout) for read, layout in _reads(node))
    found.update((tuple(val(node).shape), layout) for node, layout in _gradients(assigned))
    return found


def _reads(node: fx.Node) -> Iterator[tuple[fx.Node, Layout]]:
    """What a node reads, in the layouts it wants."""
    note = joint_note(node)
    mesh = note.placed
    for i, read in enumerate(tensor_arguments(node)):
        yield read, Layout(mesh, tuple(s.inputs[i] for s in note.chosen))


def _gradients(assigned: Assigned) -> Iterator[tuple[fx.Node, Layout]]:
    decl = assigned.decl
    for name, node in assigned.outputs.gradients.items():
        yield node, update_layout(decl.require_training(), decl.decls[name].spec, assigned.layouts[name])


def _sends(assigned: Assigned) -> Any:
    """Gives for a rank what it sends to other meshes and is sent from there."""
    wishes = [
        *(read for node in assigned.graph.nodes if joint_note(node).signatures for read in _reads(node)),
        *_gradients(assigned),
    ]
    across = {
        (tuple(val(node).shape), without_partial(layout_of(node)), without_partial(target))
        for node, target in wishes
        if not joint_note(node).everywhere and layout_of(node).mesh != target.mesh
    }
    uneven = [move for move in across if not _is_one_to_one(*move)]

    @cache
    def pieces(shape: Shape, source: Layout, target: Layout, rank: int) -> Any:
        if source.mesh.position(rank) is None and target.mesh.position(rank) is None:
            return None
        moved = transfer(shape, source, target, rank)
        return tuple(
            tuple(sorted(piece.shape for piece in side if piece.rank != rank))
            for side in (moved.outgoing, moved.incoming)
        )

    return lambda rank: tuple(pieces(*move, rank) for move in uneven)


def _is_one_to_one(shape: Shape, source: Layout, target: Layout) -> bool:
    """Whether each rank of one mesh sends what it has to one of the other: no look at every pair of ranks is needed."""
    is_apart = not set(source.mesh.ranks) & set(target.mesh.ranks)
    kinds = "".join(sbp.kind for sbp in source.sbp)
    is_in_turn = "BS" not in kinds  # else those that have the same stand apart, and the first of them serve all
    return is_apart and source.mesh.axes == target.mesh.axes and is_in_turn and source.sbp == target.sbp
