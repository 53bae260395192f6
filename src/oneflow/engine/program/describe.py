"""What a node of a program is to the user: an op and its line, the backward of one, an update, or a change of
layout."""

from __future__ import annotations

from torch import fx

from oneflow.engine.program.notes import joint_note, local_note


def what_of(node: fx.Node) -> str:
    """How errors name a node of a program."""
    note = local_note(node)
    if note.what is not None:
        return note.what
    if note.update is not None:
        listed = ", ".join(note.update.names[:3]) + (" ..." if len(note.update.names) > 3 else "")
        return f"the {note.update.optimizer} update of {listed}"
    joint = None if note.node is None else joint_note(note.node)
    origin = None if joint is None else joint.origin
    if joint is None or origin is None:
        return (
            f"the boxing of {note.boxing.node.name}"
            if note.boxing is not None
            else f"the backward pass ({node.target})"
        )
    part = "the backward of " if joint.part == "backward" else ""
    return f"{part}op {origin.name!r} ({origin.kind}) from {origin.line}"
