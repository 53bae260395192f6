"""How the devices of a job share its data readers (sharded data loading)."""

from __future__ import annotations

from torch import fx

from oneflow.engine.assignment.storage import RankOfDevice
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ir.graph import Graph, Source
from oneflow.engine.ir.notes import op_note
from oneflow.engine.sharding.mesh import Mesh, mesh_of


def shares_of(graph: Graph, source: Source, nodes: tuple[fx.Node, ...], ranks: RankOfDevice) -> tuple[Mesh, int]:
    """The devices where a reader's values are first used, and in how many shares it is read: one each, where they do
    not come out even the first ones with a row more, or one for all of them if its batch is smaller than they are
    many."""
    user = next((n for n in graph.body.nodes if any(node in n.all_input_nodes for node in nodes)), nodes[0])
    mesh = mesh_of(op_note(user).placement, ranks)
    rows = source.specs[0].shape[0]
    count = mesh.size if rows >= mesh.size or graph.is_mirrored else 1
    in_one_line = sum(extent > 1 for extent in mesh.axes) < 2
    if rows < count or rows % count and not in_one_line:
        raise ArgumentError(
            f"{op_note(nodes[0]).line}: reader {source.name!r} gives batches of {rows}, which {count} devices "
            f"{'' if in_one_line else 'in a hierarchy '}"
            f"cannot share; choose a batch size that {count} divides"
        )
    return mesh, count
