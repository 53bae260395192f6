"""Blob: a value inside a job that has a shape and a dtype but no data."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import torch
from torch import fx

from oneflow.engine.core.body import Symbol
from oneflow.engine.core.errors import DTypeError, JobError
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.sbp import AUTO, BROADCAST, Sbp, format_layout, split
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.core.tree import tree_leaves, tree_map
from oneflow.engine.ir.counted import count_of, record_counted, refuse_counted
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ir.trace import record, require_trace
from oneflow.engine.ops import elementwise
from oneflow.engine.ops.row import Op
from oneflow.engine.ops.structure import item, layout


class Blob(Symbol):
    """A symbolic tensor. It exists only inside the job body that made it."""

    __slots__ = ()
    __hash__ = object.__hash__
    __array_ufunc__ = None  # numpy numbers leave the operation to us

    @property
    def spec(self) -> TensorSpec:
        return op_note(self.node).spec

    @property
    def shape(self) -> tuple[int, ...]:
        """The whole (logical) shape; the upper bound where the input is dynamic."""
        return self.spec.shape

    static_shape = shape

    @property
    def dtype(self) -> torch.dtype:
        return self.spec.dtype.torch

    @property
    def batch_axis(self) -> int | None:
        return op_note(self.node).batch_axis

    @property
    def is_dynamic(self) -> bool:
        return op_note(self.node).is_dynamic

    @property
    def split_axis(self) -> int | None:
        """The axis along which it is asked to be split; None where it is whole, or nothing is asked."""
        return self.distribute.dim

    @property
    def is_tensor_list(self) -> bool:
        return False

    @property
    def op_name(self) -> str:
        return op_note(self.node).name

    @property
    def blob_name(self) -> str:
        return "out"

    @property
    def logical_blob_name(self) -> str:
        return f"{self.op_name}/{self.blob_name}"

    @property
    def unique_name(self) -> str:
        return self.logical_blob_name if self.distribute is AUTO else f"{self.logical_blob_name}:{self.distribute}"

    @property
    def distribute(self) -> Sbp:
        return op_note(self.node).hint or AUTO

    @property
    def placement(self) -> Placement:
        return op_note(self.node).placement

    parallel_conf = placement

    @property
    def parallel_size(self) -> int:
        return self.placement.size

    @property
    def location(self) -> str:
        """The user's file:line that made this blob."""
        return op_note(self.node).line

    def with_distribute(self, distribute: Sbp) -> Blob:
        """The same value, to be laid out as ``distribute`` says where it is used."""
        if not isinstance(distribute, Sbp):
            raise DTypeError(f"with_distribute takes flow.distribute.split/broadcast/auto, got {distribute!r}")
        blob = emit(layout, self, forward=format_layout(None if distribute is AUTO else [distribute]))
        change_op_note(blob.node, hint=distribute)
        return blob

    def with_split_distribute(self, axis: int) -> Blob:
        return self.with_distribute(split(axis))

    def with_broadcast_distribute(self) -> Blob:
        return self.with_distribute(BROADCAST)

    def with_gradient_distribute(self, distribute: Sbp) -> Blob:
        """The same value; its gradient is to be laid out as ``distribute`` says."""
        return emit(layout, self, backward="" if distribute is AUTO else str(distribute))

    def __repr__(self) -> str:
        return f"<Blob {self.op_name!r} {self.spec} from {self.location}>"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        name = getattr(func, "__name__", func)
        raise DTypeError(
            f"{name} takes tensors and got a blob; inside a job use the ops of flow, flow.math and flow.nn "
            f"(docs/ops.md)"
        )

    def _no_value(self, what: str) -> NoReturn:
        raise JobError(
            f"{what} of blob {self.op_name!r} {self.spec}: it has no value while the job is traced. "
            "A job's body runs once; use flow.where or return the blob and decide outside (or numpy() with "
            "flow.enable_eager_execution())"
        )

    def numpy(self, parallel_id: int | None = None) -> np.ndarray:
        """In eager execution: its value in the call under way, whose body is running; in the mirrored view that of one
        device."""
        return self._value("numpy()").numpy(parallel_id)

    def numpy_list(self) -> list[np.ndarray]:
        """In eager execution: its value in the call under way, one array per device in the mirrored view."""
        return self._value("numpy_list()").numpy_list()

    def _value(self, what: str) -> Any:
        trace = require_trace(f"a blob's {what}")
        if trace.graph.body is not self.node.graph or trace.value_of is None:
            self._no_value(what)
        return trace.value_of(self.node)

    def __bool__(self) -> bool:
        self._no_value("the truth")

    def __float__(self) -> float:
        self._no_value("the number")

    def __int__(self) -> int:
        self._no_value("the number")

    def __iter__(self) -> NoReturn:
        self._no_value("the elements")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._no_value("the array")

    def __len__(self) -> int:
        return self.shape[0]

    def __add__(self, other: Any) -> Blob:
        return emit(elementwise.add, self, other)

    def __radd__(self, other: Any) -> Blob:
        return emit(elementwise.add, other, self)

    def __sub__(self, other: Any) -> Blob:
        return emit(elementwise.subtract, self, other)

    def __rsub__(self, other: Any) -> Blob:
        return emit(elementwise.subtract, other, self)

    def __mul__(self, other: Any) -> Blob:
        return emit(elementwise.multiply, self, other)

    def __rmul__(self, other: Any) -> Blob:
        return emit(elementwise.multiply, other, self)

    def __truediv__(self, other: Any) -> Blob:
        return emit(elementwise.divide, self, other)

    def __rtruediv__(self, other: Any) -> Blob:
        return emit(elementwise.divide, other, self)

    def __mod__(self, other: Any) -> Blob:
        return emit(elementwise.mod, self, other)

    def __rmod__(self, other: Any) -> Blob:
        return emit(elementwise.mod, other, self)

    def __neg__(self) -> Blob:
        return emit(elementwise.multiply, self, -1)

    def __eq__(self, other: Any) -> Blob:  # type: ignore[override]
        return emit(elementwise.equal, self, other)

    def __ne__(self, other: Any) -> Blob:  # type: ignore[override]
        return emit(elementwise.not_equal, self, other)

    def __lt__(self, other: Any) -> Blob:
        return emit(elementwise.less, self, other)

    def __le__(self, other: Any) -> Blob:
        return emit(elementwise.less_equal, self, other)

    def __gt__(self, other: Any) -> Blob:
        return emit(elementwise.greater, self, other)

    def __ge__(self, other: Any) -> Blob:
        return emit(elementwise.greater_equal, self, other)


def emit(op: Op, *args: Any, name: str | None = None, **attributes: Any) -> Blob:
    """Records ``op`` in the running job and gives its one result."""
    return Blob(_record(op, args, attributes, name))


def emit_many(op: Op, *args: Any, name: str | None = None, **attributes: Any) -> tuple[Blob, ...]:
    """Records an op of several results and gives them all."""
    node = _record(op, args, attributes, name, gives_several=True)
    base = op_note(node).name
    count = len(op_note(node).spec)
    names = [base.rsplit("-", 1)[-1] + f"_out{i}" for i in range(count)]
    return tuple(Blob(record(item, (node, i), {}, names[i])) for i in range(count))


def _record(
    op: Op, args: tuple[Any, ...], attributes: dict[str, Any], name: str | None, gives_several: bool = False
) -> fx.Node:
    trace = require_trace(f"flow.{op.name}")
    args, attributes = tree_map(lambda a: _node(a, op, trace.graph.body), (args, attributes))
    count = count_of([node for node in tree_leaves((args, attributes)) if isinstance(node, fx.Node)], op)
    if count is None:
        return record(op, args, attributes, name)
    return record_counted(op, args, attributes, name, count) if not gives_several else refuse_counted(op, args)


def with_count(rows: Blob, count: Blob) -> Blob:
    """``rows``, of which only so many first ones are meant; what a job returns is cut to them."""
    change_op_note(rows.node, count=count.node, is_dynamic=True)
    return rows


def _node(value: Any, op: Op, graph: fx.Graph) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, Blob):
        return value
    if value.node.graph is not graph:
        raise JobError(f"{op.name} was given {value!r}, which belongs to another job or another trace of this one")
    return value.node
