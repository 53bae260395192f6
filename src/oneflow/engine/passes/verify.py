"""What each stage of the compiler must leave. Tests run it between stages (``after`` of ``distribute_job`` and
``compile_rank``)."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import fx

from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.capture.cleanup import changes, writes
from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.calls import tensor_arguments
from oneflow.engine.program.digest import digest
from oneflow.engine.program.notes import JointNote, argument_note, joint_note, local_note, update_note, val
from oneflow.engine.program.program import Key, Program, key_order

aten = torch.ops.aten
_BOOKKEEPING = (aten.detach.default, aten.alias.default)
_OF_A_STEP = ("variable", "prepared", "feed", "step", "scale", "unscale", "rate")
"""The kinds of arguments that a step brings itself; a ("value", ...) is made by an earlier section."""


def verify(stage: str, left: fx.Graph | Assigned | Program) -> None:
    """Checks what a stage has left; the error names the stage and the node."""
    if isinstance(left, Program):
        _program(stage, left)
    elif isinstance(left, Assigned):
        _assigned(stage, left)
    else:
        _joint(stage, left)


def _require(stage: str, node: fx.Node | str, condition: bool, what: str) -> None:
    assert condition, f"stage {stage!r} left {node}: {what}"


def _calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


# ------------------------------------------------------------------ the joint graph


def _joint(stage: str, graph: fx.Graph) -> None:
    """A graph of aten ops; each node knows its value without data, its part, and its op or none. Cleaned, nothing in it
    is idle."""
    graph.lint()
    for node in _calls(graph):
        is_aten = isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem
        _require(stage, node, is_aten, f"calls {node.target}, which is no aten op")
        _require(stage, node, isinstance(joint_note(node), JointNote), "has no note")
        _require(stage, node, joint_note(node).part in ("forward", "backward"), "is of no part")
        if stage != "joint":
            _require(stage, node, val(node) is not None, "has no value noted")
            _require(stage, node, node.target not in _BOOKKEEPING, "is autograd's bookkeeping")
            _require(stage, node, bool(node.users) or changes(node), "is read by nobody")
        if stage == "without writes":
            is_argument = not writes(node) or argument(node, 0).op == "placeholder"
            _require(stage, node, is_argument, "writes into what another op made")


def _assigned(stage: str, assigned: Assigned) -> None:
    """Every node has a mesh, and every op one signature per axis that fits its tensors; variables lie as the assignment
    says."""
    for node in assigned.graph.nodes:
        note = joint_note(node)
        _require(stage, node, note.mesh is not None, "has no mesh")
        if node.target is operator.getitem:
            continue
        _require(stage, node, len(note.chosen) == len(note.placed.axes), "has not one signature per axis of its mesh")
        made = val(node)
        outputs = len(made) if isinstance(made, (tuple, list)) else 1
        for signature in note.chosen:
            _require(
                stage,
                node,
                len(signature.outputs) == outputs,
                f"has {outputs} outputs and a signature of {len(signature.outputs)}",
            )
            if node.op == "call_function":
                inputs = len(tensor_arguments(node))
                _require(
                    stage,
                    node,
                    len(signature.inputs) == inputs,
                    f"has {inputs} inputs and a signature of {len(signature.inputs)}",
                )
    for name in assigned.decl.decls:
        layout = assigned.layouts[name]
        _require(stage, name, all(sbp.kind in ("S", "B") for sbp in layout.sbp), f"lies as {layout}")
    placed = {rank for mesh in assigned.meshes for rank in mesh.ranks}
    _require(stage, assigned.decl.job, placed == set(assigned.ranks), "has nodes on other ranks than its own")


# ------------------------------------------------------------------ programs


def _program(stage: str, program: Program) -> None:
    """Plain data: sections whose arguments are in order and come from somewhere, whose outputs are what is asked for,
    whose calls are noted."""
    made: set[Key] = set()
    for name, section in program.sections.items():
        section.graph.lint()
        arguments = [node for node in section.graph.nodes if node.op == "placeholder"]
        returned = argument(next(node for node in section.graph.nodes if node.op == "output"), 0)
        _require(stage, name, len(arguments) == len(section.inputs), "has other arguments than it says")
        _require(stage, name, len(returned) == len(section.outputs), "has other outputs than it says")
        _require(
            stage, name, list(section.inputs) == sorted(section.inputs, key=key_order), "has arguments out of order"
        )
        strange = [key for key in section.inputs if key[0] not in _OF_A_STEP and key not in made]
        _require(stage, name, not strange, f"reads {strange}, which no section before it makes")
        made.update(section.outputs)
        for node in _calls(section.graph):
            _require(stage, node, local_note(node) is not None, "has no note")
        for node, key in zip(arguments, section.inputs):
            note = argument_note(node)
            _require(stage, node, note is None or note.key == key, f"is argument {key} and noted as {note}")
    _asked_for(stage, program, made)
    _updates_once(stage, program)
    digest(program)  # raises where something is no plain value


def _asked_for(stage: str, program: Program, made: set[Key]) -> None:
    keys = [key for key in (*program.results, *program.watched, *program.gradients, program.finite) if key is not None]
    missing = [key for key in keys if key not in made]
    _require(stage, program.job, not missing, f"is to give {missing}, which no section makes")
    fed = {key[1] for section in program.sections.values() for key in section.inputs if key[0] == "feed"}
    _require(stage, program.job, set(program.feeds) == fed, f"takes feeds {sorted(fed)} and says {program.feeds}")


def _updates_once(stage: str, program: Program) -> None:
    names = [name for node in _every_call(program) if (note := update_note(node)) is not None for name in note.names]
    _require(stage, program.job, len(names) == len(set(names)), "updates a variable twice")


def _every_call(program: Program) -> Iterable[fx.Node]:
    return [node for section in program.sections.values() for node in _calls(section.graph)]
