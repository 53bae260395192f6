"""Which device mesh each node of a joint graph runs on: that of the op it came from. Several in a row are the stages of
pipeline parallelism.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from torch import fx

from oneflow.engine.core.sbp import BROADCAST
from oneflow.engine.program.calls import tensor_arguments
from oneflow.engine.program.notes import Origin, change_joint_note, joint_note, val
from oneflow.engine.sharding.mesh import Layout, Mesh
from oneflow.engine.sharding.rules.rule import Signature


def place(
    graph: fx.Graph, mesh_of: Callable[[Origin], Mesh | None], fixed: Mapping[fx.Node, Layout], default: Mesh
) -> None:
    """Notes on every node its mesh. A backward node runs where its forward op does; what is fed to the graph lies where
    it is first used, unless ``fixed`` says where it is stored. An op of which ``mesh_of`` does not know runs where its
    first input lies.

    Relies on a clean joint graph. Leaves a mesh on every node but the output.
    """
    nodes = [node for node in graph.nodes if node.op != "output"]
    for node in nodes:
        origin = joint_note(node).origin
        if node.op == "call_function" and origin is not None:
            change_joint_note(node, mesh=mesh_of(origin))
    # for where they are read: what is made of nothing, such as random numbers, and what is made of that alone
    waiting = []
    for node in nodes:
        if node.op == "placeholder":
            change_joint_note(node, mesh=fixed[node].mesh if node in fixed else _first_user(node, default))
        elif joint_note(node).mesh is None:
            change_joint_note(node, mesh=_first_input(node))
            waiting += [node] if joint_note(node).mesh is None else []
    for node in reversed(waiting):
        change_joint_note(node, mesh=_first_user(node, default))


def _first_user(node: fx.Node, default: Mesh) -> Mesh:
    """Where a value is first read: by an op, or by what an op reads."""
    return next((mesh for mesh in map(_reader, node.users) if mesh is not None), default)


def _reader(node: fx.Node) -> Mesh | None:
    return joint_note(node).mesh or next((mesh for mesh in map(_reader, node.users) if mesh is not None), None)


def _first_input(node: fx.Node) -> Mesh | None:
    notes = [joint_note(n) for n in node.all_input_nodes]
    return next((note.mesh for note in notes if note.mesh is not None and not note.everywhere), None)


def whole_on_one_rank(graph: fx.Graph, mesh: Mesh) -> None:
    """Where there is one rank, every value is whole on it and no layout is to be chosen. Relies on a clean joint graph;
    leaves what ``place`` and ``infer`` would."""
    for node in graph.nodes:
        change_joint_note(node, mesh=mesh, signatures=() if node.target is operator.getitem else (_whole(node),))


def _whole(node: fx.Node) -> Signature:
    made = val(node)
    outputs = len(made) if isinstance(made, (tuple, list)) else 1
    return Signature((BROADCAST,) * len(tensor_arguments(node)), (BROADCAST,) * outputs)


def stages_of(graph: fx.Graph) -> list[Mesh] | None:
    """The meshes of a pipeline from first to last: disjoint, values of the forward part flowing only ahead. None for
    any other graph."""
    return None if flow_back(graph) is not None else _disjoint(graph)


def flow_back(graph: fx.Graph) -> tuple[fx.Node, fx.Node] | None:
    """The first value, an input or what an op has made, that is read by the forward part of an earlier mesh than it
    lies on, and its reader. A stage that runs ahead by some micro-batches would wait for one that waits for it. None if
    there is none, or no stages."""
    number = {mesh: i for i, mesh in enumerate(_disjoint(graph) or [])}
    for reader in graph.nodes if number else ():
        if reader.op != "call_function" or joint_note(reader).part != "forward":
            continue
        here = number[joint_note(reader).placed]
        for value in reader.all_input_nodes:
            note = joint_note(value)
            if number.get(note.placed, here) > here and not note.is_stored and not note.everywhere:
                return value, reader
    return None


def _disjoint(graph: fx.Graph) -> list[Mesh] | None:
    """The meshes of the forward part in the order of their first ops, where there are several that share no rank."""
    notes = [joint_note(node) for node in graph.nodes if node.op == "call_function"]
    found = list(dict.fromkeys(note.placed for note in notes if note.part == "forward"))
    members = [rank for mesh in found for rank in mesh.ranks]
    return found if len(found) > 1 and len(set(members)) == len(members) else None
