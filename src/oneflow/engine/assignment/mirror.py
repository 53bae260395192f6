"""The mirrored view: each device runs a copy (replica, as in DDP) of the job on inputs of its own.

To the compiler every value of a copy is whole (B), so that nothing is chosen and nothing is boxed. What leaves the
copies is marked P, one part per device: results, of which each device sends its own, and gradients, with whose sum over
the devices all copies are updated.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.joint import Outputs
from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.core.sbp import BROADCAST, PARTIAL
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import op_note
from oneflow.engine.program.calls import call_of
from oneflow.engine.program.notes import (
    JointNote,
    change_joint_note,
    copy_notes,
    joint_note,
    set_joint_note,
    set_val,
    val,
)
from oneflow.engine.program.step_decl import StepDecl
from oneflow.engine.sharding.call import Call
from oneflow.engine.sharding.mesh import Layout, Mesh, mesh_of
from oneflow.engine.sharding.rules.rule import Local, Signature, Value, whole

aten = torch.ops.aten
_LAYOUT = torch.ops.oneflow.layout.default


def mirrored_mesh(graph: Graph, ranks: Mapping[tuple[int, int], int]) -> Mesh:
    """The devices of a mirrored job, each of which runs all of it."""
    lines = {op_note(node).placement: op_note(node).line for node in graph.body.nodes if node.op == "call_function"}
    if len(lines) > 1:
        *_, (placement, line) = lines.items()
        others = ", ".join(str(other) for other in lines if other != placement)
        raise UnsupportedError(
            f"{line}: job {graph.job!r} is in the mirrored view, in which every device runs all of its ops, but they "
            f"are placed on "
            f"{placement} and on {others}; use one placement, or the consistent view"
        )
    where = next(iter(lines), graph.placement)
    assert where is not None
    return mesh_of(where, ranks)


def require_whole(step: StepDecl, layouts: Mapping[str, Layout], mesh: Mesh) -> None:
    """Refuses variables that are not whole on every device of a mirrored job."""
    for name in step.decls:
        layout = layouts[name]
        if layout.mesh != mesh or any(sbp.kind not in ("B", "auto") for sbp in layout.sbp):
            raise UnsupportedError(
                f"{step.decls[name].line}: variable {name!r} lies as {layout}, but job {step.job!r} is in the mirrored "
                f"view and needs it "
                f"whole on each device of {mesh}; declare it with distribute=flow.distribute.broadcast() on the job's "
                f"placement, or use "
                "the consistent view"
            )


def mirror(joint: fx.Graph, step: fx.Node | None, outputs: Outputs, mesh: Mesh) -> Outputs:
    """Has every rank of ``mesh`` run the whole graph; the outputs, marked as parts.

    Relies on a clean joint graph without layout hints. Leaves a mesh and a signature on every node. Copies for inputs
    of other shapes have other graphs. Gradients are marked, and so reduced, in an order that is the same in all of
    them.
    """
    if outputs.rates:
        raise UnsupportedError(
            "CustomScheduler takes its rate from a blob, of which each device has its own in the mirrored view; use "
            "another schedule"
        )
    for node in joint.nodes:
        change_joint_note(node, mesh=mesh)
        if node.target is not operator.getitem:
            _sign(node, Signature((), (BROADCAST,)) if node.op == "placeholder" else whole(call_of(node, mesh.size)))
    if step is not None and step.users:
        _draw_apart(joint, step)
    results = [_leaving(joint, node) for node in outputs.results]
    watched = [_leaving(joint, node) for node in outputs.watched]
    gradients = {
        name: _leaving(joint, outputs.gradients[name]) for name in reversed(outputs.gradients)
    }  # about the order they are made in
    return Outputs(results, watched, [], gradients)


def _sign(node: fx.Node, signature: Signature) -> None:
    change_joint_note(node, signatures=(signature,) * len(joint_note(node).placed.axes))


def _leaving(joint: fx.Graph, node: fx.Node) -> fx.Node:
    marked = joint.call_function(_LAYOUT, (node, str(PARTIAL), ""))
    copy_notes(marked, node)
    change_joint_note(marked, is_stored=False, everywhere=False)
    _sign(marked, Signature((BROADCAST,), (PARTIAL,)))
    return marked


def _draw_apart(joint: fx.Graph, step: fx.Node) -> None:
    """To random ops every device is at a step of its own, so that no two share a mask."""
    first = next(node for node in joint.nodes if node.op != "placeholder")
    with joint.inserting_before(first):
        own = joint.call_function(aten.clone.default, (step,))
    step.replace_all_uses_with(own, delete_user_cb=lambda user: user is not own)
    note = joint_note(step)
    set_joint_note(own, JointNote(joint_note(next(iter(own.users))).origin, note.part, mesh=note.mesh))
    set_val(own, val(step))
    _sign(own, Signature((BROADCAST,), (BROADCAST,), _own_step))


def _own_step(local: Local, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    return local.call(aten.add.Tensor, local.call(aten.mul.Tensor, args[0], call.parts), local.place)
