"""Micro-batches by hand: what lies between ``flow.unpack`` or ``flow.repeat`` and ``flow.pack`` or ``flow.acc`` runs
once for each micro-batch.

The body sees the blobs of the first one. Where they are put together, the ops that made them are recorded again for
every other one, on its own part of what was cut; so a program needs no loop, and gradients and devices need no rule for
it.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from oneflow.engine.core.errors import JobError, UnsupportedError
from oneflow.engine.ir.nodes import row_of
from oneflow.engine.ir.notes import change_op_note, op_note, set_op_note
from oneflow.engine.ir.trace import Trace, record
from oneflow.engine.ops.array import assign, concat
from oneflow.engine.ops.index import slice_v2
from oneflow.engine.ops.kernels.counter_random import stable_seed


def begin(node: fx.Node, count: int) -> None:
    """Notes that ``node`` is what the first of ``count`` micro-batches has: a part of a blob, or all of it."""
    change_op_note(node, micro=count)


def copies(trace: Trace, node: fx.Node, count: int, what: str) -> list[fx.Node]:
    """``node`` as each of ``count`` micro-batches has it."""
    found = op_note(node).micro
    if found != count:
        came = "is the same in all micro-batches" if found == 1 else f"is one of {found} micro-batches"
        raise UnsupportedError(
            f"{what} puts {count} micro-batches together, but {op_note(node).name!r} {came}; cut with flow.unpack or "
            f"flow.repeat by the same number"
        )
    reached = trace.graph.reached_by([node])
    region = [other for other in trace.graph.body.nodes if op_note(other).micro > 1 and other in reached]
    return [node, *(_copy(trace, region, node, i) for i in range(1, count))]


def joined(trace: Trace, node: fx.Node) -> fx.Node:
    """A loss of all micro-batches; one that is not of a micro-batch is given back."""
    count = op_note(node).micro
    return node if count == 1 else record_joined(copies(trace, node, count, "a loss"), None)


def record_joined(parts: list[fx.Node], name: str | None) -> fx.Node:
    """What the micro-batches have, along the first axis."""
    made = record(concat, (parts,), {"axis": 0}, name)
    change_op_note(made, micro=1)
    return made


def require_joined(trace: Trace) -> None:
    """Refuses what leaves the body of a job out of the first micro-batch alone."""
    graph = trace.graph
    written = [node for node in graph.body.nodes if node.target is assign]
    for node in [*graph.result_nodes(), *(watch.node for watch in graph.watches), *written]:
        if op_note(node).micro > 1:
            raise JobError(
                f"{op_note(node).line}: {op_note(node).name!r} is one of {op_note(node).micro} micro-batches; "
                "put them together with flow.pack or flow.acc before it is returned, watched or assigned to a variable"
            )


def _copy(trace: Trace, region: list[fx.Node], wanted: fx.Node, number: int) -> fx.Node:
    made = trace.micro_copies.setdefault(number, {})
    for node in region:
        if node not in made:
            made[node] = _again(trace, node, made, number)
    return made[wanted]


def _again(trace: Trace, node: fx.Node, made: dict[fx.Node, fx.Node], number: int) -> fx.Node:
    """One op of the region for another micro-batch."""
    note = op_note(node)
    is_first = all(op_note(n).micro == 1 for n in node.all_input_nodes)
    if is_first and node.target is not slice_v2:
        return node  # a repeated blob
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: made.get(n, n))
    changes: dict[str, Any] = {}
    if is_first:
        size = note.spec.shape[0]
        changes["bounds"] = ((number * size, (number + 1) * size, 1),)
    elif row_of(node).random:
        changes["seed"] = stable_seed(node.kwargs["seed"], f"micro-batch {number}")
    copy = trace.graph.body.call_function(row_of(node), args, {**kwargs, **changes})
    set_op_note(copy, note)
    change_op_note(copy, name=trace.claim_full(f"{note.name}_of_{number}"), micro=1)
    return copy
