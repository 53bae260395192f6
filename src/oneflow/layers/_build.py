"""What layers share: their names, their variables, their activation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from oneflow.core.operator.op_conf_pb2 import kNone, kRelu, kSigmoid, kTanH
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.sbp import Sbp
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ir.variable import get_variable
from oneflow.initializer import zeros_initializer
from oneflow.math import relu, sigmoid, tanh

Activation = Callable[..., Blob] | int


_BY_NUMBER: dict[int, Callable[..., Blob] | None] = {kNone: None, kTanH: tanh, kSigmoid: sigmoid, kRelu: relu}


def layer_name(kind: str, name: str | None) -> str:
    """The given name, or "Dense", "Dense_1" ... in the order of the job's calls."""
    trace = require_trace(f"flow.layers ({kind})")
    return trace.auto_name(kind, first_plain=True) if name is None else name


def weight(
    name: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    initializer: Any,
    regularizer: Any,
    trainable: bool,
    distribute: Sbp | None = None,
) -> Blob:
    """A kernel variable; zeros if there is no initializer."""
    return get_variable(
        name,
        shape,
        dtype,
        zeros_initializer() if initializer is None else initializer,
        regularizer=regularizer,
        trainable=trainable,
        model_name="weight",
        distribute=distribute,
    )


def bias(
    name: str,
    units: int,
    dtype: torch.dtype,
    initializer: Any,
    regularizer: Any,
    trainable: bool,
    distribute: Sbp | None = None,
) -> Blob:
    """A bias variable; zeros if there is no initializer."""
    return get_variable(
        name,
        (units,),
        dtype,
        zeros_initializer() if initializer is None else initializer,
        regularizer=regularizer,
        trainable=trainable,
        model_name="bias",
        distribute=distribute,
    )


def activate(out: Blob, activation: Activation | None, name: str) -> Blob:
    """``activation`` of a layer's result, given a name of its own if it takes one."""
    if isinstance(activation, int):
        if activation not in _BY_NUMBER:
            raise ArgumentError(
                f"activation is a function of a blob, or kNone, kTanH, kSigmoid or kRelu of op_conf_pb2; got "
                f"{activation!r}"
            )
        activation = _BY_NUMBER[activation]
    if activation is None:
        return out
    if not callable(activation):
        raise ArgumentError(f"activation is a function of a blob, such as flow.nn.relu; got {activation!r}")
    return activation(out, name=f"{name}_activation") if _takes_name(activation) else activation(out)


def _takes_name(function: Callable[..., Blob]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.kind is p.VAR_KEYWORD or (p.name == "name" and p.kind is not p.POSITIONAL_ONLY) for p in parameters)
