"""From a graph of aten ops to the parts of an ONNX graph, op by op."""

from __future__ import annotations

import inspect
import operator
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.forward_graph import Captured, node_path
from oneflow.engine.core.errors import ArgumentError, OneFlowError, UnsupportedError
from oneflow.engine.onnx.aten.batch import Pairing, line_of
from oneflow.engine.onnx.aten.builder import AtenBuilder, Batch, Times
from oneflow.engine.onnx.aten.family import AtenRow
from oneflow.engine.onnx.aten.table import REASONS, ROWS
from oneflow.engine.onnx.aten.tidy import only_used, transposed_in_gemm
from oneflow.engine.onnx.builder import TENSOR_TYPES, Node, Operand, Wire
from oneflow.engine.onnx.emit import OnnxParts

_CHECKS = frozenset(
    ["_assert_tensor_metadata.default", "_assert_async.msg", "_assert_async.default", "_assert_scalar.default"]
)
Value = Operand | tuple[Operand | None, ...]


class AtenGraphEmitter:
    """Walks a graph in order and lets each op's emitter speak. ``pairing`` tells what follows the batch, of which
    ``batch_inputs`` have one."""

    def __init__(
        self, captured: Captured, opset: int, pairing: Pairing | None = None, batch_inputs: tuple[str, ...] = ()
    ) -> None:
        self._captured = captured
        self._opset = opset
        self._pairing = pairing
        self._names = {node: name for name, node in captured.placeholders().items()}
        self._values: dict[fx.Node, Value] = {}
        self._wanted = _reached(captured)
        self._batch = self._batch_of(batch_inputs)
        self.parts = OnnxParts()

    def run(self) -> OnnxParts:
        """The whole graph. Ops that no output depends on are left out."""
        self._require_no_writes()
        if self._batch is not None:
            self._read_batch(self._batch)
        for node in self._captured.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node in self._wanted and node.op == "get_attr":
                self._constant(node, f"{node.target}/value", self._captured.attributes[str(node.target)])
            elif node in self._wanted and node.op == "call_function":
                self._call(node)
        self._outputs()
        return only_used(transposed_in_gemm(self.parts))

    # Inputs and constants.

    def _batch_of(self, inputs: tuple[str, ...]) -> Batch | None:
        return (
            None
            if self._pairing is None or not inputs
            else Batch(Wire(f"{inputs[0]}/batch", torch.int64), self._pairing.size)
        )

    def _read_batch(self, batch: Batch) -> None:
        source = batch.wire.name.removesuffix("/batch")
        shape, zero = f"{source}/shape", f"{source}/zero"
        self.parts.constants[zero] = torch.tensor([0])
        self.parts.nodes.append(Node("Shape", shape, (source,), (shape,)))
        self.parts.nodes.append(Node("Gather", batch.wire.name, (shape, zero), (batch.wire.name,), {"axis": 0}))

    def _placeholder(self, node: fx.Node) -> None:
        name = self._names[node]
        if name in self._captured.constants:
            self._values[node] = self._operand(node, name)
            if node in self._wanted:
                self.parts.variables.append(name)
        else:
            value = self._operand(node, name)
            self._values[node] = value
            self.parts.inputs.append(value)

    def _constant(self, node: fx.Node, name: str, tensor: torch.Tensor) -> None:
        self._values[node] = _operand(name, tensor)
        self.parts.constants[name] = tensor.detach().cpu()

    def _operand(self, node: fx.Node, name: str, index: int | None = None) -> Operand:
        value = node.meta["val"] if index is None else node.meta["val"][index]
        follows = frozenset() if self._pairing is None else self._pairing.dims(node, index)
        return _operand(name, value, follows)

    def _require_no_writes(self) -> None:
        """What is written into an input stays outside of the model; a parameter or buffer it cannot write."""
        for node in self._captured.graph.nodes:
            written = node.args[0] if str(node.target) == "aten.copy_.default" else None
            if isinstance(written, fx.Node) and self._names.get(written) in self._captured.constants:
                raise UnsupportedError(
                    f"{self._line(node)}: it writes {self._names[written]!r}, and an ONNX model has no variables that "
                    f"a call could write; "
                    "call .eval() on the module, or return the new value instead"
                )

    # Ops.

    def _call(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            self._values[node] = self._item(node, self._values[_source(node)], _place(node))
        elif _tells_strides_alone(node):
            self._values[node] = self._values[_source(node)]
        elif _overload(node) not in _CHECKS:
            self._emit(node)

    def _item(self, node: fx.Node, values: Value, index: int) -> Operand:
        value = values[index] if isinstance(values, tuple) else None
        if value is None:
            raise UnsupportedError(f"{self._line(node.args[0])}: ONNX cannot express its result number {index}")
        return value

    def _emit(self, node: fx.Node) -> None:
        builder = self._builder(node)
        self.parts.lines[builder.name] = self._line(node)
        row = self._row(node)
        try:
            args, kwargs = self._arguments(node, row)
            made = row.emit(builder, *args, **kwargs)
        except OneFlowError as error:
            raise UnsupportedError(f"{self._line(node)}: {error.reason}") from None
        self._finish(node, builder, made)

    def _builder(self, node: fx.Node) -> AtenBuilder:
        name = "/".join(part for part in (node_path(node), node.name) if part)
        value = node.meta["val"]
        results: tuple[Operand, ...] = ()
        if isinstance(value, torch.Tensor):
            results, wanted = (self._operand(node, f"{name}/out_0"),), frozenset([0])
        else:
            results = tuple(self._operand_or_none(node, name, i) for i in range(len(value)))
            wanted = frozenset(_place(user) for user in node.users if user in self._wanted)
        return AtenBuilder(name, self._opset, results, wanted, self._batch)

    def _operand_or_none(self, node: fx.Node, name: str, index: int) -> Operand:
        """Results without a dtype in ONNX are there, so that others have their places; nobody can use them."""
        value = node.meta["val"][index]
        is_known = isinstance(value, torch.Tensor) and value.dtype in TENSOR_TYPES
        return (
            self._operand(node, f"{name}/out_{index}", index)
            if is_known
            else Operand(f"{name}/out_{index}", torch.float32, ())
        )

    def _row(self, node: fx.Node) -> AtenRow:
        name = _overload(node)
        if name in ROWS:
            return ROWS[name]
        reason = REASONS.get(
            name, "there is no emitter of it; write it with other ops, or compute it outside of the model"
        )
        raise UnsupportedError(f"{self._line(node)}: ONNX cannot express it: {reason}")

    def _arguments(self, node: fx.Node, row: AtenRow) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = list(node.args), dict(node.kwargs)
        if self._pairing is not None:
            other = self._pairing.other[node]
            args = [self._pairing.argument(a, b) for a, b in zip(args, other.args)]
            kwargs = {key: self._pairing.argument(value, other.kwargs[key]) for key, value in kwargs.items()}
            _require_known(row, args, kwargs)
        return [self._argument(a) for a in args], {key: self._argument(value) for key, value in kwargs.items()}

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._argument(item) for item in value]
        return self._values[value] if isinstance(value, fx.Node) else value

    def _finish(self, node: fx.Node, builder: AtenBuilder, made: Any) -> None:
        if isinstance(made, Wire):
            self._values[node] = builder.results[0]
            builder.finish(made)
        else:
            given = [wire is not None and i in builder.wanted for i, wire in enumerate(made)]
            self._values[node] = tuple(result if is_given else None for result, is_given in zip(builder.results, given))
            builder.results = tuple(result for result, is_given in zip(builder.results, given) if is_given)
            builder.finish([wire for wire, is_given in zip(made, given) if is_given])
        self.parts.nodes += builder.nodes
        self.parts.constants |= builder.constants
        self.parts.values += builder.results

    # Outputs and messages.

    def _outputs(self) -> None:
        """Outputs in order, each under its name. Copies, so that an input, a parameter or the same value twice may be
        one."""
        taken = {value.name for value in self.parts.inputs} | set(self._captured.constants)
        for name, node in zip(self._captured.outputs, self._captured.output_nodes(), strict=True):
            value = self._values[node]
            assert isinstance(value, Operand)
            if name in taken:
                raise ArgumentError(
                    f"the output {name!r} has the name of an input, a parameter or another output; give output_names"
                )
            taken.add(name)
            self.parts.nodes.append(Node("Identity", f"{name}/result", (value.name,), (name,)))
            self.parts.outputs.append(Operand(name, value.dtype, value.shape, value.batch_dims))

    def _line(self, node: Any) -> str:
        path = node_path(node)
        where = f" (in module {path!r})" if path else ""
        return f"{line_of(node)}{node.target}{where}"


def _operand(name: str, value: torch.Tensor, follows: frozenset[int] = frozenset()) -> Operand:
    if value.dtype not in TENSOR_TYPES:
        raise UnsupportedError(
            f"{name!r} is of {value.dtype}, which the ONNX export does not have; cast it to another dtype"
        )
    return Operand(name, value.dtype, tuple(value.shape), follows)


def _overload(node: fx.Node) -> str:
    return str(node.target).removeprefix("aten.")


def _source(node: fx.Node) -> fx.Node:
    """What an op with one tensor takes, as its first argument."""
    source = node.args[0]
    assert isinstance(source, fx.Node), node.format_node()
    return source


def _place(getitem: fx.Node) -> int:
    """Which of several results a ``getitem`` gives."""
    index = getitem.args[1]
    assert isinstance(index, int), getitem.format_node()
    return index


def _plain_arguments(node: fx.Node) -> list[Any]:
    """The arguments behind the first: numbers and lists of them, as the op's schema has them."""
    return list(node.args[1:])


def _tells_strides_alone(node: fx.Node) -> bool:
    """Whether an ``as_strided`` gives the same elements, with other strides of dims of size 1, as torch's pools do for
    pictures with channels last."""
    if _overload(node) != "as_strided.default":
        return False
    size, stride, *offset = _plain_arguments(node)
    own = _source(node).meta["val"]
    same = all(n == 1 or mine == theirs for n, mine, theirs in zip(size, own.stride(), stride))
    return tuple(size) == tuple(own.shape) and same and offset in ([], [None], [0])


def _reached(captured: Captured) -> set[fx.Node]:
    """The nodes that outputs depend on."""
    found: set[fx.Node] = set()
    todo = captured.output_nodes()
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(node.all_input_nodes)
    return found


def _require_known(row: AtenRow, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Numbers that follow the batch stand only where the emitter expects them."""
    bound = inspect.signature(row.emit).bind(None, *args, **kwargs).arguments
    for name, value in bound.items():
        if name not in row.follows and _has_times(value):
            raise UnsupportedError(
                f"dynamic_batch: its argument {name!r} is computed from the batch size; write it without (such as -1 "
                f"or *_like), "
                "or export with dynamic_batch=False"
            )


def _has_times(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_times, value.values()))
    return any(map(_has_times, value)) if isinstance(value, (list, tuple)) else isinstance(value, Times)
