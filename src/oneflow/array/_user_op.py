"""``flow.user_op_builder``: ops by the name of the original's kernel, for those that are here under that name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oneflow import math
from oneflow.array._choose import gather
from oneflow.array._shape import cast, concat, expand_dims, identity, reshape, squeeze, transpose
from oneflow.engine.core.errors import ArgumentError, UnsupportedError, nearest
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import activation as activation_rows
from oneflow.engine.ops import matmul as matmul_rows

_UNARY = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp expm1 floor gelu lgamma log log1p log_sigmoid "
    "negative reciprocal "
    "reciprocal_no_nan relu rint round rsqrt sigmoid sign sin sinh softplus sqrt square tan tanh"
).split()
_BINARY = {
    "broadcast_add": "add", "broadcast_sub": "subtract", "broadcast_mul": "multiply", "broadcast_div": "divide", "broadcast_maximum": "maximum",
    "broadcast_minimum": "minimum", "broadcast_equal": "equal", "broadcast_not_equal": "not_equal", "broadcast_greater": "greater",
    "broadcast_greater_equal": "greater_equal", "broadcast_less": "less", "broadcast_less_equal": "less_equal", "broadcast_floor_mod": "mod",
    "broadcast_logical_and": "logical_and", "multiply": "multiply", "pow": "pow", "atan2": "atan2", "floordiv": "floordiv", "xdivy": "xdivy", "xlogy": "xlogy",
}  # fmt: skip
_REDUCE = ("reduce_sum", "reduce_prod", "reduce_min", "reduce_max", "reduce_any", "reduce_all")


class _Call:
    """The inputs and attributes that one op was given; ``taken`` are those that it read."""

    def __init__(self, kind: str, inputs: dict[str, list[Blob]], attributes: dict[str, Any], name: str) -> None:
        self.kind, self.inputs, self.attributes, self.name = kind, inputs, attributes, name

    def blob(self, key: str) -> Blob:
        return self.blobs(key)[0]

    def blobs(self, key: str) -> list[Blob]:
        if key not in self.inputs:
            raise ArgumentError(
                f"the op {self.kind!r} has an input {key!r}, given were "
                f"{sorted(self.inputs)}.{nearest(key, self.inputs)}"
            )
        return self.inputs[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.attributes.get(key, default)


def _unary(name: str) -> Callable[[_Call], Blob]:
    return lambda call: getattr(math, name)(call.blob("in" if "in" in call.inputs else "x"), name=call.name)


def _binary(name: str) -> Callable[[_Call], Blob]:
    return lambda call: getattr(math, name)(call.blob("x"), call.blob("y"), name=call.name)


def _reduce(name: str) -> Callable[[_Call], Blob]:
    def made(call: _Call) -> Blob:
        return getattr(math, name)(
            call.blob("input_tensor"), call.get("axis"), call.get("keepdims", False), name=call.name
        )

    return made


def _matmul(call: _Call) -> Blob:
    attributes = {key: bool(call.get(key, False)) for key in ("transpose_a", "transpose_b")}
    return emit(
        matmul_rows.matmul,
        call.blob("a"),
        call.blob("b"),
        alpha=float(call.get("alpha", 1.0)),
        name=call.name,
        **attributes,
    )


_KINDS: dict[str, Callable[[_Call], Blob]] = {
    **{name: _unary(name) for name in _UNARY},
    **{kind: _binary(name) for kind, name in _BINARY.items()},
    **{name: _reduce(name) for name in _REDUCE},
    "add_n": lambda call: math.add_n(call.blobs("in"), name=call.name),
    "argmax": lambda call: math.argmax(call.blob("in"), name=call.name),
    "batch_matmul": _matmul,
    "cast": lambda call: cast(call.blob("in"), call.get("dtype"), name=call.name),
    "concat": lambda call: concat(call.blobs("in"), call.get("axis", 0), name=call.name),
    "expand_dims": lambda call: expand_dims(call.blob("in"), call.get("axis", 0), name=call.name),
    "gather": lambda call: gather(call.blob("in"), call.blob("indices"), axis=call.get("axis", 0), name=call.name),
    "identity": lambda call: identity(call.blob("in"), name=call.name),
    "leaky_relu": lambda call: emit(
        activation_rows.leaky_relu, call.blob("x"), alpha=float(call.get("alpha", 0.2)), name=call.name
    ),
    "matmul": _matmul,
    "reshape": lambda call: reshape(call.blob("in"), list(call.get("shape", ())), name=call.name),
    "squeeze": lambda call: squeeze(call.blob("in"), call.get("axes"), name=call.name),
    "transpose": lambda call: transpose(call.blob("input"), list(call.get("perm", ())), name=call.name),
}


class UserOpBuilder:
    """Collects what an op is given: ``.Op(type).Input(key, [blob]).Output(key).Attr(key,
    value).Build().InferAndTryRun().RemoteBlobList()``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._kind: str | None = None
        self._inputs: dict[str, list[Blob]] = {}
        self._attributes: dict[str, Any] = {}
        self._result: Blob | None = None

    def Op(self, op_type_name: str) -> UserOpBuilder:
        """Says which op it is; one that is not here is refused by its type."""
        if op_type_name not in _KINDS:
            raise UnsupportedError(
                f"flow.user_op_builder({self._name!r}).Op({op_type_name!r}): no op is here under this "
                f"type.{nearest(op_type_name, _KINDS)} "
                "Call the function of flow that does the same; ops in C++ are not there"
            )
        self._kind = op_type_name
        return self

    def Input(self, input_name: str, input_blob_list: Sequence[Blob]) -> UserOpBuilder:
        """The blobs of one input."""
        self._inputs[input_name] = list(input_blob_list)
        return self

    def InputSize(self, input_name: str, input_blob_size: int) -> UserOpBuilder:
        """How many blobs an input has; they tell it themselves."""
        return self

    def Output(self, output_name: str, num: int = 1) -> UserOpBuilder:
        """The ops that are here have one output."""
        if num != 1:
            raise UnsupportedError(
                f"flow.user_op_builder({self._name!r}): {num} outputs of {output_name!r}; the ops that are here have "
                f"one"
            )
        return self

    def Attr(self, attr_name: str, attr_value: Any, attr_type_name: str | None = None) -> UserOpBuilder:
        """An attribute."""
        self._attributes[attr_name] = attr_value
        return self

    def CheckAndComplete(self) -> UserOpBuilder:
        """Nothing is left to complete."""
        return self

    def Build(self) -> UserOpBuilder:
        """The op as it was told."""
        if self._kind is None:
            raise ArgumentError(f"flow.user_op_builder({self._name!r}).Build() comes after .Op(type)")
        return self

    def InferAndTryRun(self) -> UserOpBuilder:
        """Records the op in the job."""
        assert self._kind is not None
        self._result = _KINDS[self._kind](_Call(self._kind, self._inputs, self._attributes, self._name))
        return self

    def RemoteBlobList(self) -> list[Blob]:
        """Its results."""
        if self._result is None:
            raise ArgumentError(f"flow.user_op_builder({self._name!r}).RemoteBlobList() comes after .InferAndTryRun()")
        return [self._result]

    def SoleOutputBlob(self) -> Blob:
        """Its one result."""
        return self.RemoteBlobList()[0]


def user_op_builder(op_name: str) -> UserOpBuilder:
    """An op by the name of the original's kernel, to be called ``op_name`` in the job."""
    return UserOpBuilder(op_name)


consistent_user_op_builder = user_op_builder
