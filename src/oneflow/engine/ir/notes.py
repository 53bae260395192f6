"""What is noted on every node of a logical graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from oneflow.engine.core.placement import Placement
from oneflow.engine.core.sbp import Sbp

_KEY = "op"


@dataclass(frozen=True)
class OpNote:
    """An op of a job, or one of its inputs: its name as users see it, what it gives, the user's file and line, where it
    runs.

    ``batch_axis`` is the dim along which an input is cut for devices and micro-batches (None: it is not), ``hint`` the
    layout that the user asks for. ``pictures`` and ``coin`` are what ops on pictures remember of the pipeline that
    makes them. Of a blob with a ``count`` only so many first rows are meant. What is made in one ``region`` is made
    again for the backward pass. Above 1, ``micro`` says of how many micro-batches this is the first (``micro.py``).
    """

    name: str
    spec: Any  # TensorSpec, or a tuple of them for an op with several outputs
    line: str
    placement: Placement
    is_dynamic: bool = False
    batch_axis: int | None = None
    hint: Sbp | None = None
    pictures: Any = None
    coin: Any = None
    count: fx.Node | None = None
    region: int | None = None
    micro: int = 1


def op_note(node: fx.Node) -> OpNote:
    """The note of a node of a logical graph."""
    return node.meta[_KEY]


def set_op_note(node: fx.Node, note: OpNote) -> None:
    """Gives a node its note, in place of any it had."""
    node.meta[_KEY] = note


def change_op_note(node: fx.Node, **changes: Any) -> None:
    """Gives a node a note with some fields changed."""
    node.meta[_KEY] = replace(op_note(node), **changes)
