"""A predict job as a forward graph of aten ops: its logical graph is interpreted op by op, without data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.cleanup import drop_layouts
from oneflow.engine.capture.forward_graph import Captured, forward_graph, functional, set_place
from oneflow.engine.capture.tracer import traced_nodes
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.tree import tree_leaves
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.interpret import interpret
from oneflow.engine.ir.nodes import row_of
from oneflow.engine.ir.notes import op_note
from oneflow.engine.job.job import Job
from oneflow.engine.onnx.lookup import input_names

Names = dict[fx.Node, str]


def capture_job(job: Job, graph: Graph, weights: Mapping[str, torch.Tensor], doc: str) -> Captured:
    """Traces the results of a job.

    Args:
        job: The job, for the names of its inputs.
        graph: What its body recorded, with the job's own shapes or others.
        weights: The values of the variables that results depend on.
        doc: The documentation of the model.

    Returns:
        The forward graph. Inputs and variables have the names that users know; nodes know the op that they came from
        and the user's line; the results of ops are called ``<op>/out_<number>``.
    """
    _require_no_writes(graph)
    _require_whole_results(graph)
    needed = _needed(graph)
    names = _placeholder_names(needed, input_names(job))
    step = _InterpretedStep(needed, list(names))
    aten_graph, attributes = forward_graph(step.run, [_example(node) for node in names])
    step.note_places(aten_graph)
    drop_layouts(aten_graph)
    every_value = Captured(
        aten_graph, tuple(names.values()), weights, tuple(step.value_names), attributes, graph.job, doc
    )
    return _with_results(functional(every_value), needed, names)


def needed_variables(graph: Graph) -> list[str]:
    """The variables that a result depends on."""
    needed = graph.reached_by(graph.result_nodes())
    return [name for name, node in graph.variables.items() if node in needed]


def plain_attributes(graph: Graph) -> dict[str, dict[str, Any]]:
    """The numbers and strings among the arguments of each op, by op name."""
    return {
        op_note(node).name: {key: value for key, value in node.kwargs.items() if isinstance(value, (int, float, str))}
        for node in graph.body.nodes
        if node.op == "call_function"
    }


def _require_no_writes(graph: Graph) -> None:
    for node in graph.body.nodes:
        if node.op == "call_function" and row_of(node).name == "assign":
            raise UnsupportedError(
                f"{_describe(node)}: ONNX cannot express it: an ONNX model has no variables that a step could write"
            )


def _require_whole_results(graph: Graph) -> None:
    for node in graph.result_nodes():
        if op_note(node).count is not None:
            raise UnsupportedError(
                f"{_describe(node)}: ONNX cannot express it: it has as many rows as the data says; export what it is "
                f"computed from, and compute it in numpy"
            )


def _describe(node: fx.Node) -> str:
    return f"{op_note(node).line}: {node.target} ({op_note(node).name!r})"


def _needed(graph: Graph) -> Graph:
    """A copy of the graph with the ops that a result depends on, and all inputs of the job."""
    copy = graph.copy()
    kept = copy.reached_by(copy.result_nodes()) | set(copy.inputs)
    for node in reversed(list(copy.body.nodes)):
        if node not in kept:
            copy.body.erase_node(node)
    copy.variables = {name: node for name, node in copy.variables.items() if node in kept}
    return copy


def _placeholder_names(graph: Graph, names_of_inputs: list[str]) -> Names:
    """A name for each placeholder: inputs of the job first, then what a source gives, then variables."""
    inputs = dict(zip(graph.inputs, names_of_inputs, strict=True))
    variables = {node: name for name, node in graph.variables.items()}
    others = [n for n in graph.body.nodes if n.op == "placeholder" and n not in inputs and n not in variables]
    names = {**inputs, **{node: op_note(node).name for node in others}, **variables}
    twice = [name for name, count in Counter(names.values()).items() if count > 1]
    if twice:
        raise ArgumentError(
            f"job {graph.job!r} has two inputs or variables called {twice[0]!r}, an ONNX model cannot; rename one"
        )
    return names


def _example(node: fx.Node) -> torch.Tensor:
    """A tensor of a placeholder's shape and dtype, whose values nothing reads."""
    spec = op_note(node).spec
    return torch.empty(spec.shape, dtype=spec.dtype.torch)


class _InterpretedStep:
    """The traced function of a job's placeholders. It gives the results of every op, so that they can be named."""

    def __init__(self, graph: Graph, placeholders: list[fx.Node]) -> None:
        self.graph = graph
        self.placeholders = placeholders
        self.value_names: list[str] = []
        self._marks: list[tuple[int, fx.Node]] = []

    def run(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        env = interpret(self.graph, dict(zip(self.placeholders, tensors)), "cpu", self._enter)
        results = {
            f"{op_note(node).name}/out_{i}": result
            for node in self.graph.body.nodes
            if node.op == "call_function"
            for i, result in enumerate(tree_leaves(env[node]))
        }
        self.value_names = list(results)
        return list(results.values())

    def _enter(self, node: fx.Node) -> None:
        self._marks.append((traced_nodes(), node))

    def note_places(self, aten_graph: fx.Graph) -> None:
        """Notes on each aten node the op that it came from."""
        nodes = [node for node in aten_graph.nodes if node.op != "output"]
        ends = [start for start, _ in self._marks[1:]] + [len(nodes)]
        for (start, op), end in zip(self._marks, ends):
            for node in nodes[start:end]:
                set_place(node, op_note(op).name, op_note(op).line, str(op.target))


def _with_results(every_value: Captured, graph: Graph, names: Names) -> Captured:
    """The graph with the job's results as its outputs, instead of all results of ops."""
    by_name = dict(zip(every_value.outputs, every_value.output_nodes(), strict=True))
    value_names: Names = {}
    for name, value in by_name.items():
        value_names.setdefault(value, name)
    by_name |= every_value.placeholders()
    outputs: dict[str, fx.Node] = {}
    for i, node in enumerate(graph.result_nodes()):
        name = names.get(node, f"{op_note(node).name}/out_0")
        unique = f"{name}/result_{i}" if node in names or name in outputs else name
        outputs[unique] = by_name[name]
    output_node = next(node for node in reversed(every_value.graph.nodes) if node.op == "output")
    output_node.args = (list(outputs.values()),)
    return replace(every_value, outputs=tuple(outputs), value_names=value_names)
