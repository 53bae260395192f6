"""From a graph of aten ops to the parts of an ONNX graph, op by op."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Iterable, Mapping
from copy import copy
from itertools import groupby
from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.forward_graph import Captured, describe_node, node_kind, node_path
from oneflow.engine.core.errors import ArgumentError, OneFlowError, UnsupportedError
from oneflow.engine.onnx.aten.batch import Pairing
from oneflow.engine.onnx.aten.builder import AtenBuilder, Batch, BatchSource, Times
from oneflow.engine.onnx.aten.family import AtenRow
from oneflow.engine.onnx.aten.table import REASONS, ROWS
from oneflow.engine.onnx.aten.tidy import only_used, transposed_in_gemm
from oneflow.engine.onnx.builder import TENSOR_TYPES, Node, Operand, Wire
from oneflow.engine.onnx.parts import FOREIGN_DOMAIN, OnnxParts

_CHECKS = frozenset(
    ["_assert_tensor_metadata.default", "_assert_async.msg", "_assert_async.default", "_assert_scalar.default"]
)
Value = Operand | tuple[Operand | None, ...]
Attributes = Mapping[str, Mapping[str, Any]]
"""Plain arguments by op name."""


class AtenGraphEmitter:
    """Calls the emitter of each op of a graph, in order.

    Args:
        captured: The graph, without ops that write into tensors.
        opset: The version of ONNX's operator set.
        pairing: What follows the batch; None for a fixed batch.
        batch: The input that the model reads the batch size from; None for a fixed batch.
        foreign: The plain arguments of a job's ops by name, to replace an op that ONNX cannot express by an operator
            of ``FOREIGN_DOMAIN``; None raises an error instead.
    """

    def __init__(
        self,
        captured: Captured,
        opset: int,
        pairing: Pairing | None = None,
        batch: BatchSource | None = None,
        foreign: Attributes | None = None,
    ) -> None:
        self._captured = captured
        self._opset = opset
        self._pairing = pairing
        self._names = {node: name for name, node in captured.placeholders().items()}
        self._values: dict[fx.Node, Value] = {}
        self._wanted = _reached(captured)
        self._source = batch
        self._batch = None if batch is None or pairing is None else Batch(batch.wire, pairing.size)
        self._foreign = foreign
        self.parts = OnnxParts()

    def run(self) -> OnnxParts:
        """The whole graph. Ops that no output depends on are left out."""
        self._require_no_writes()
        if self._source is not None:
            self._read_batch(self._source)
        for op, nodes in groupby(list(self._captured.graph.nodes), node_path):
            if self._foreign is None or op not in self._foreign:
                self._nodes(nodes)
            else:
                self._op_or_foreign(op, list(nodes), self._foreign[op])
        self._outputs()
        self._warn_of_foreign()
        return only_used(transposed_in_gemm(self.parts))

    def _nodes(self, nodes: Iterable[fx.Node]) -> None:
        for node in nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node in self._wanted and node.op == "get_attr":
                self._constant(node, f"{node.target}/value", self._captured.attributes[str(node.target)])
            elif node in self._wanted and node.op == "call_function":
                self._call(node)

    # Inputs and constants.

    def _read_batch(self, source: BatchSource) -> None:
        shape, axis, size, divisor = (f"{source.input}/{part}" for part in ("shape", "axis", "size", "divisor"))
        batch = source.wire.name
        size = batch if source.divisor == 1 else size
        self.parts.constants |= {axis: torch.tensor([source.axis]), divisor: torch.tensor([source.divisor])}
        self.parts.nodes += [
            Node("Shape", shape, (source.input,), (shape,)),
            Node("Gather", size, (shape, axis), (size,), {"axis": 0}),
        ]
        if size != batch:
            self.parts.nodes.append(Node("Div", batch, (size, divisor), (batch,)))

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
                    f"{describe_node(node)}: it writes {self._names[written]!r}, and an ONNX model has no variables that "
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
            raise UnsupportedError(f"{describe_node(node.args[0])}: ONNX cannot express its result number {index}")
        return value

    def _emit(self, node: fx.Node) -> None:
        builder = self._builder(node)
        self.parts.lines[builder.name] = describe_node(node)
        row = self._row(node)
        try:
            args, kwargs = self._arguments(node, row)
            made = row.emit(builder, *args, **kwargs)
        except OneFlowError as error:
            raise UnsupportedError(f"{describe_node(node)}: {error.reason}") from None
        self._finish(node, builder, made)

    def _builder(self, node: fx.Node) -> AtenBuilder:
        value = node.meta["val"]
        items = {_place(user): user for user in node.users if user in self._wanted and user.target is operator.getitem}
        name = self._op_name([items[i] for i in sorted(items)] or [node]) or _node_name(node)
        results: tuple[Operand, ...] = ()
        if isinstance(value, torch.Tensor):
            results, wanted = (self._operand(node, self._value_name(node, f"{name}/out_0")),), frozenset([0])
        else:
            results = tuple(self._operand_or_none(node, name, i, items.get(i)) for i in range(len(value)))
            wanted = frozenset(items)
        return AtenBuilder(name, self._opset, results, wanted, self._batch)

    def _op_name(self, values: list[fx.Node]) -> str:
        """The op of a job whose first result is among these values, or nothing."""
        names = [self._captured.value_names.get(value, "") for value in values]
        return next((name.removesuffix("/out_0") for name in names if name.endswith("/out_0")), "")

    def _value_name(self, value: fx.Node | None, otherwise: str) -> str:
        return otherwise if value is None else self._captured.value_names.get(value, otherwise)

    def _operand_or_none(self, node: fx.Node, name: str, index: int, item: fx.Node | None) -> Operand:
        """One of several results. Those of a dtype that ONNX lacks have a placeholder, which no other op uses."""
        value = node.meta["val"][index]
        is_known = isinstance(value, torch.Tensor) and value.dtype in TENSOR_TYPES
        result = self._value_name(item, f"{name}/out_{index}")
        return self._operand(node, result, index) if is_known else Operand(result, torch.float32, ())

    def _row(self, node: fx.Node) -> AtenRow:
        name = _overload(node)
        if name in ROWS:
            return ROWS[name]
        reason = REASONS.get(
            name, f"there is no emitter of {node.target}; write it with other ops, or compute it outside of the model"
        )
        raise UnsupportedError(f"{describe_node(node)}: ONNX cannot express it: {reason}")

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

    # Ops that ONNX cannot express.

    def _op_or_foreign(self, op: str, nodes: list[fx.Node], attributes: Mapping[str, Any]) -> None:
        """Emits all nodes of a job's op, or one foreign operator if one of them has no emitter."""
        before = _copied(self.parts)
        try:
            self._nodes(nodes)
        except UnsupportedError:
            self.parts = before
            self._emit_foreign(op, nodes, attributes)

    def _emit_foreign(self, op: str, nodes: list[fx.Node], attributes: Mapping[str, Any]) -> None:
        own = set(nodes)
        inputs = dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in own)
        results = [n for n in nodes if n in self._wanted and any(user not in own for user in n.users)]
        for node in results:
            self._values[node] = self._operand(node, self._value_name(node, f"{_node_name(node)}/out_0"))
        read, made = (tuple(_operand_of(self._values[node]).name for node in group) for group in (inputs, results))
        kind = node_kind(nodes[-1])
        self.parts.lines[op] = describe_node(nodes[-1])
        self.parts.foreign.append(f"{kind} ({op!r})")
        self.parts.nodes.append(Node(kind.rsplit(".", 1)[-1], op, read, made, dict(attributes), FOREIGN_DOMAIN))
        self.parts.values += [_operand_of(self._values[node]) for node in results]

    def _warn_of_foreign(self) -> None:
        if self.parts.foreign:
            warnings.warn(
                f"the model is not plain ONNX, a runtime must bring operators of the domain {FOREIGN_DOMAIN!r}: "
                f"{'; '.join(self.parts.foreign)}",
                stacklevel=3,
            )

    # Outputs.

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
            if name != value.name:
                self.parts.nodes.append(Node("Identity", f"{name}/result", (value.name,), (name,)))
            self.parts.outputs.append(Operand(name, value.dtype, value.shape, value.batch_dims))


def _node_name(node: fx.Node) -> str:
    return "/".join(part for part in (node_path(node), node.name) if part)


def _operand_of(value: Value) -> Operand:
    assert isinstance(value, Operand), value
    return value


def _copied(parts: OnnxParts) -> OnnxParts:
    return OnnxParts(**{name: copy(value) for name, value in vars(parts).items()})


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
