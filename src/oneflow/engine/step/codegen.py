"""Code generation: Python source from a graph of function calls, straight-line code in which values are dropped after
their last use.

Each line calls the C++ entry of an aten op. That costs less per step than an fx module, and a line tells which op, and
so which line of the user, has failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from oneflow.engine.ops.cpu.native_sequence import call_sequence
from oneflow.engine.ops.dense_operands import STRIDE_SAFE

Bind = Callable[[Any], Any]


@dataclass(frozen=True)
class Code:
    """A compiled step. ``node_at`` tells which node a line of ``source`` runs."""

    call: Callable[..., Any]
    source: str
    filename: str
    node_at: dict[int, fx.Node]


def generate(graph: fx.Graph, name: str, bind: Bind | None = None) -> Code:
    """Compiles ``graph`` into a function of its placeholders. ``bind`` gives for a function or constant of the graph
    what the code runs with in its place, such as a buffer for the value that names it; without, each is what it is."""
    writer = _Writer(bind)
    last_use = _last_uses(graph)
    placeholders = [writer.value(node) for node in graph.nodes if node.op == "placeholder"]
    lines = [f"def step({', '.join(placeholders)}):"]
    node_at: dict[int, fx.Node] = {}
    for node in graph.nodes:
        if node.op == "call_function":
            lines.append(f"    {writer.call(node)}{writer.release(last_use.get(node, []))}{_format_ops(node)}")
            node_at[len(lines)] = node
        elif node.op == "output":
            lines.append(f"    return {writer.argument(node.args[0])}")
    source, filename = "\n".join(lines) + "\n", f"<program of job {name}>"
    exec(compile(source, filename, "exec"), writer.names)  # noqa: S102 - the source is ours, made from the graph above
    return Code(writer.names["step"], source, filename, node_at)


def _format_ops(node: fx.Node) -> str:
    """Formats the ops of a sequence as a comment, for readers of the source."""
    if node.target is not call_sequence:
        return ""
    sequence: Any = node.args[0]
    return f"  # {', '.join(sequence.ops())}"


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each node the values that no later node reads; what an unread node made goes at once."""
    seen: set[fx.Node] = set()
    last: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(list(graph.nodes)):
        reads = [n for n in node.all_input_nodes if n not in seen]
        seen.update(reads)
        last[node] = [n for n in reads if n.op == "call_function"]
    return last


class _Writer:
    """Names for values, functions and constants of one generated function."""

    def __init__(self, bind: Bind | None) -> None:
        self.names: dict[str, Any] = {}
        self._bind = bind
        self._values: dict[fx.Node, str] = {}
        self._bound: dict[int, str] = {}

    def value(self, node: fx.Node) -> str:
        return self._values.setdefault(node, f"v{len(self._values)}")

    def bind(self, thing: Any, prefix: str) -> str:
        """A name for something that has no literal."""
        thing = thing if self._bind is None else self._bind(thing)
        if id(thing) not in self._bound:
            self._bound[id(thing)] = f"{prefix}{len(self._bound)}"
            self.names[self._bound[id(thing)]] = thing
        return self._bound[id(thing)]

    def call(self, node: fx.Node) -> str:
        args = [self.argument(a) for a in node.args] + [f"{k}={self.argument(v)}" for k, v in node.kwargs.items()]
        if getattr(node.target, "__name__", "") == "getitem":
            return f"{self.value(node)} = {args[0]}[{args[1]}]"
        call = f"{self.bind(_callable(node.target), 'f_')}({', '.join(args)})"
        return f"{self.value(node)} = {call}" if node.users else call

    def release(self, nodes: list[fx.Node]) -> str:
        return f"; {' = '.join(self.value(n) for n in nodes)} = None" if nodes else ""

    def argument(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self.value(value)
        if isinstance(value, tuple):
            return f"({''.join(self.argument(v) + ', ' for v in value)})"
        if isinstance(value, list):
            return f"[{', '.join(self.argument(v) for v in value)}]"
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return repr(value)
        return self.bind(value, "c_")


def _callable(target: Any) -> Callable[..., Any]:
    """The C++ entry of an aten op, without the Python wrapper around it; what is called instead of a kernel that ignores
    strides."""
    return STRIDE_SAFE.get(target) or (target._op if isinstance(target, torch._ops.OpOverload) else target)
