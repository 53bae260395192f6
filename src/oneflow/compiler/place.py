"""Which device mesh each node of a joint graph runs on: that of the op it came from. Several in a row are the stages of pipeline
parallelism.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from torch import fx

from oneflow.compiler.calls import tensor_arguments
from oneflow.compiler.notes import Origin, change_joint_note, joint_note, val
from oneflow.core.sbp import BROADCAST
from oneflow.sharding.mesh import Layout, Mesh
from oneflow.sharding.rules.rule import Signature


def place(graph: fx.Graph, mesh_of: Callable[[Origin], Mesh | None], fixed: Mapping[fx.Node, Layout], default: Mesh) -> None:
    """Notes on every node its mesh. A backward node runs where its forward op does; what is fed to the graph lies where it
    is first used, unless ``fixed`` says where it is stored. An op of which ``mesh_of`` does not know runs where its first input lies.

    Relies on a clean joint graph. Leaves a mesh on every node but the output.
    """
    nodes = [node for node in graph.nodes if node.op != "output"]
    for node in nodes:
        origin = joint_note(node).origin
        if node.op == "call_function" and origin is not None:
            change_joint_note(node, mesh=mesh_of(origin))
    waiting = []  # for where they are read: what is made of nothing, such as random numbers, and what is made of that alone
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
    """Where there is one rank, every value is whole on it and no layout is to be chosen. Relies on a clean joint graph; leaves what
    ``place`` and ``infer`` would."""
    for node in graph.nodes:
        change_joint_note(node, mesh=mesh, signatures=() if node.target is operator.getitem else (_whole(node),))


def _whole(node: fx.Node) -> Signature:
    made = val(node)
    outputs = len(made) if isinstance(made, (tuple, list)) else 1
    return Signature((BROADCAST,) * len(tensor_arguments(node)), (BROADCAST,) * outputs)


def stages_of(graph: fx.Graph) -> list[Mesh] | None:
    """The meshes of a pipeline from first to last: disjoint, values of the forward part flowing only ahead. None for any other graph."""
    found: list[Mesh] = []
    for node in graph.nodes:
        note = joint_note(node)
        if node.op == "call_function" and note.part == "forward" and note.placed not in found:
            found.append(note.placed)
    members = [rank for mesh in found for rank in mesh.ranks]
    if len(found) < 2 or len(set(members)) != len(members) or not _flows_ahead(graph, found):
        return None
    return found


def _flows_ahead(graph: fx.Graph, stages: list[Mesh]) -> bool:
    number = {mesh: i for i, mesh in enumerate(stages)}
    for node in graph.nodes:
        if node.op != "call_function" or joint_note(node).part != "forward":
            continue
        here = number[joint_note(node).placed]
        if any(number.get(joint_note(n).placed, here) > here for n in node.all_input_nodes if n.op == "call_function"):
            return False
    return True
