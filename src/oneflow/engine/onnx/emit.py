"""From the logical graph of a job to the parts of an ONNX graph, op by op."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from oneflow.engine.core.errors import ArgumentError, OneFlowError, UnsupportedError
from oneflow.engine.core.tree import tree_map
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.nodes import row_of
from oneflow.engine.ir.notes import op_note
from oneflow.engine.onnx.builder import Builder, Node, Operand
from oneflow.engine.onnx.record import BatchDims

# The operator set of rows that ONNX cannot express, for runtimes that bring them along.
FOREIGN_DOMAIN = "oneflow"


@dataclass
class OnnxParts:
    """An ONNX graph as plain values. ``lines`` tells for each op's name which row it was and where the user wrote
    it."""

    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    variables: list[str] = field(default_factory=list)
    values: list[Operand] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)


class GraphEmitter:
    """Walks a graph in order and lets each op's emitter speak."""

    def __init__(self, graph: Graph, opset: int, names: list[str], dims: BatchDims, continue_on_error: bool) -> None:
        self._graph = graph
        self._opset = opset
        self._dims = dims
        self._continue = continue_on_error
        self._values: dict[fx.Node, Operand | tuple[Operand, ...]] = {}
        self._input_names = dict(zip(graph.inputs, names, strict=True))
        self.parts = OnnxParts()

    def run(self) -> OnnxParts:
        """The whole graph. Ops that no result depends on are left out, but for those that would write a variable."""
        results = self._graph.result_nodes()
        wanted = self._graph.reached_by([*results, *_writes(self._graph)])
        for node in self._graph.body.nodes:
            if node.op == "placeholder":
                self._placeholder(node, node in wanted)
            elif node in wanted:
                self._op(node)
        self._require_one_name_each()
        self._outputs(results)
        if self.parts.foreign:
            listed = "; ".join(self.parts.foreign)
            warnings.warn(
                f"the model is not plain ONNX, a runtime must bring operators of the domain {FOREIGN_DOMAIN!r}: "
                f"{listed}",
                stacklevel=3,
            )
        return self.parts

    def _placeholder(self, node: fx.Node, is_wanted: bool) -> None:
        """Variables become initializers, all else inputs: those of the job whether or not a result depends on them."""
        name = op_note(node).name
        if self._graph.variables.get(name) is node:
            self._values[node] = self._operand(node, name)
            if is_wanted:
                self.parts.variables.append(name)
        elif node in self._input_names or is_wanted:
            value = self._values[node] = self._operand(node, self._input_names.get(node, name))
            self.parts.inputs.append(value)

    def _operand(self, node: fx.Node, name: str, index: int = 0) -> Operand:
        spec = op_note(node).spec[index] if isinstance(op_note(node).spec, tuple) else op_note(node).spec
        follows = self._dims[node][index] if node in self._dims else frozenset()
        return Operand(name, spec.dtype.torch, spec.shape, follows)

    def _op(self, node: fx.Node) -> None:
        name, spec = op_note(node).name, op_note(node).spec
        count = len(spec) if isinstance(spec, tuple) else 1
        results = tuple(self._operand(node, f"{name}/out_{i}", i) for i in range(count))
        builder = Builder(name, self._opset, results)
        self.parts.lines[name] = f"{op_note(node).line}: {node.target} ({name!r})"
        self._emit(node, builder)
        self.parts.nodes += builder.nodes
        self.parts.constants |= builder.constants
        self.parts.values += results
        self._values[node] = results if isinstance(spec, tuple) else results[0]

    def _emit(self, node: fx.Node, builder: Builder) -> None:
        from oneflow.engine.onnx.rows.table import (  # a file per family of ops, which only an export needs
            EMITTERS,
            REASONS,
        )

        row = row_of(node).name
        args, attributes = tree_map(self._argument, (list(node.args), dict(node.kwargs)))
        try:
            if row not in EMITTERS:
                raise UnsupportedError(f"ONNX cannot express it: {REASONS.get(row, 'the row has no emitter')}")
            builder.finish(EMITTERS[row](builder, *args, **attributes))
        except OneFlowError as error:
            if not self._continue:
                raise UnsupportedError(f"{self.parts.lines[builder.name]}: {error.reason}") from None
            self.parts.foreign.append(f"{row} ({builder.name!r})")
            _foreign(builder, row, args, attributes)

    def _argument(self, value: Any) -> Any:
        return self._values[value] if isinstance(value, fx.Node) else value

    def _outputs(self, results: list[fx.Node]) -> None:
        """Outputs in the order of the job's results; a blob that is an input, a variable or there twice is copied under
        a name of its own."""
        taken = {value.name for value in self.parts.inputs} | set(self.parts.variables)
        for i, node in enumerate(results):
            value = self._values[node]
            assert isinstance(value, Operand)
            if value.name in taken:
                copied = Operand(f"{value.name}/result_{i}", value.dtype, value.shape, value.batch_dims)
                self.parts.nodes.append(Node("Identity", copied.name, (value.name,), (copied.name,)))
                value = copied
            taken.add(value.name)
            self.parts.outputs.append(value)

    def _require_one_name_each(self) -> None:
        """ONNX has one namespace for inputs and variables, a job has two."""
        names = [value.name for value in self.parts.inputs] + self.parts.variables
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ArgumentError(
                f"job {self._graph.job!r} has two inputs or variables called {twice[0]!r}, an ONNX model cannot; "
                f"rename one"
            )


def _writes(graph: Graph) -> list[fx.Node]:
    return [node for node in graph.body.nodes if node.op == "call_function" and row_of(node).name == "assign"]


def _foreign(builder: Builder, row: str, args: list[Any], attributes: dict[str, Any]) -> None:
    """One node of the foreign domain in place of what the emitter began: the row's name, its tensors and its plain
    arguments."""
    inputs: list[str] = []
    tree_map(lambda value: inputs.append(value.name) if isinstance(value, Operand) else None, (args, attributes))
    plain = {key: value for key, value in attributes.items() if isinstance(value, (int, float, str))}
    outputs = tuple(result.name for result in builder.results)
    builder.constants.clear()
    builder.nodes[:] = [Node(row.rsplit(".", 1)[-1], builder.name, tuple(inputs), outputs, plain, FOREIGN_DOMAIN)]
