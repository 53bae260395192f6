"""The text form of a logical graph: one line per node, in order, the same for the same program."""

from __future__ import annotations

from typing import Any

from torch import fx

from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import op_note


def graph_text(graph: Graph, lines: bool = True) -> str:
    """``%conv1: float32(8, 32, 28, 28) = nn.conv2d(%images, %conv1-weight, ...)``, with the user's file:line behind
    it."""
    kind = "train" if graph.is_train else "predict"
    rows = [f"{kind} job {graph.job}"]
    rows += [_row(node, graph, lines) for node in graph.body.nodes]
    rows += [f"loss %{op_note(node).name}" for node in graph.losses]
    rows += [f"watch {'gradient of ' if watch.diff else ''}%{op_note(watch.node).name}" for watch in graph.watches]
    rows.append(f"return {_shown(graph.results)}")
    return "\n".join(rows)


def _row(node: fx.Node, graph: Graph, lines: bool) -> str:
    left = f"%{op_note(node).name}: {op_note(node).spec}"
    right = _placeholder(node, graph) if node.op == "placeholder" else f"{node.target}({_arguments(node)})"
    return f"  {left} = {right}" + (f"  # {op_note(node).line}" if lines else "")


def _placeholder(node: fx.Node, graph: Graph) -> str:
    if node in graph.inputs:
        return "input"
    return "variable" if graph.variables.get(op_note(node).name) is node else "source"


def _arguments(node: fx.Node) -> str:
    named = [f"{key}={_shown(value)}" for key, value in node.kwargs.items()]
    return ", ".join([*map(_shown, node.args), *named])


def _shown(value: Any) -> str:
    if isinstance(value, fx.Node):
        return f"%{op_note(value).name}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)
