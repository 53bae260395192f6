"""``flow.layers``: normalisation with variables of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from oneflow.engine.core.number import flag, number
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ir.variable import get_variable
from oneflow.engine.ops import elementwise, unary
from oneflow.engine.ops import norm as rows
from oneflow.initializer import ones_initializer, zeros_initializer
from oneflow.layers import _build as build
from oneflow.nn import _arguments as arguments
from oneflow.nn import layer_norm as normalise_layer


def batch_normalization(
    inputs: Blob,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    trainable: bool = True,
    training: bool = True,
    name: str | None = None,
    gamma_name: str | None = None,
    beta_name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
) -> Blob:
    """Batch normalisation of the channels at ``axis``: the last by default, 1 for "NCHW".

    In train jobs, if ``training`` and ``trainable``, the batch's own statistics normalise, and the moving ones follow
    them: moving = momentum · moving + (1 - momentum) · batch, with the unbiased variance. Otherwise the moving ones
    normalise. Variables of shape (channels,): ``<name>-gamma`` (ones) with ``scale``, ``<name>-beta`` (zeros) with
    ``center``, ``<name>-moving_mean`` and ``<name>-moving_variance``, float32 beside half-precision inputs. The last
    two are never trained. ``gamma_name``, ``beta_name``, ``moving_mean_name`` and ``moving_variance_name`` replace
    these names.
    """
    name = build.layer_name("BatchNorm", name)
    rank = len(arguments.blob("inputs", inputs).shape)
    dim = arguments.axis_in("axis", axis, rank)
    rate, tiny = number("momentum", momentum, 0, 1), number("epsilon", epsilon, 0)
    make = _Parameters((inputs.shape[dim],), _parameter_dtype(inputs))
    gamma = (
        make.trained(
            gamma_name or f"{name}-gamma", gamma_initializer or ones_initializer(), gamma_regularizer, trainable
        )
        if flag("scale", scale)
        else None
    )
    beta = (
        make.trained(beta_name or f"{name}-beta", beta_initializer or zeros_initializer(), beta_regularizer, trainable)
        if flag("center", center)
        else None
    )
    mean = make.moving(moving_mean_name or f"{name}-moving_mean", moving_mean_initializer or zeros_initializer())
    variance = make.moving(
        moving_variance_name or f"{name}-moving_variance", moving_variance_initializer or ones_initializer()
    )
    operands = (inputs, mean, variance, gamma, beta)
    if (
        flag("training", training)
        and flag("trainable", trainable)
        and require_trace("flow.layers.batch_normalization").is_train
    ):
        return emit(rows.batch_norm_train, *operands, name=name, axis=dim, momentum=rate, epsilon=tiny)
    return emit(rows.batch_norm_infer, *operands, name=name, axis=dim, epsilon=tiny)


def batch_normalization_add_relu(
    inputs: Blob,
    addend: Blob | None = None,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    trainable: bool = True,
    training: bool = True,
    name: str | None = None,
    gamma_name: str | None = None,
    beta_name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
) -> Blob:
    """relu(batch_normalization(inputs, ...) + addend)."""
    name = build.layer_name("BatchNorm", name)
    out = batch_normalization(
        inputs,
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        beta_regularizer,
        gamma_regularizer,
        moving_mean_initializer,
        moving_variance_initializer,
        trainable,
        training,
        name,
        gamma_name,
        beta_name,
        moving_mean_name,
        moving_variance_name,
    )
    if addend is not None:
        out = emit(elementwise.add, out, addend, name=f"{name}_add")
    return emit(unary.relu, out, name=f"{name}_relu")


def batch_normalization_relu(
    inputs: Blob,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 0.001,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    beta_regularizer: Any = None,
    gamma_regularizer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    trainable: bool = True,
    training: bool = True,
    name: str | None = None,
) -> Blob:
    """relu(batch_normalization(inputs, ...))."""
    return batch_normalization_add_relu(
        inputs,
        None,
        axis,
        momentum,
        epsilon,
        center,
        scale,
        beta_initializer,
        gamma_initializer,
        beta_regularizer,
        gamma_regularizer,
        moving_mean_initializer,
        moving_variance_initializer,
        trainable,
        training,
        name,
    )


def layer_norm(
    inputs: Blob,
    center: bool = True,
    scale: bool = True,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-5,
    name: str | None = None,
) -> Blob:
    """Normalises each sample over the axes from ``begin_norm_axis`` on.

    ``<name>-gamma`` (ones) with ``scale`` and ``<name>-beta`` (zeros) with ``center`` have the shape of the axes from
    ``begin_params_axis`` on.
    """
    name = build.layer_name("LayerNorm", name)
    rank = len(arguments.blob("inputs", inputs).shape)
    shape = inputs.shape[arguments.axis_in("begin_params_axis", begin_params_axis, rank) :]
    make = _Parameters(shape, inputs.dtype)
    gamma = make.trained(f"{name}-gamma", ones_initializer(), None, trainable) if flag("scale", scale) else None
    beta = make.trained(f"{name}-beta", zeros_initializer(), None, trainable) if flag("center", center) else None
    return normalise_layer(inputs, gamma, beta, begin_norm_axis, begin_params_axis, epsilon, name)


@dataclass(frozen=True)
class _Parameters:
    """Makes the variables of one layer."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def trained(self, name: str, initializer: Any, regularizer: Any, trainable: bool) -> Blob:
        return get_variable(name, self.shape, self.dtype, initializer, regularizer, trainable)

    def moving(self, name: str, initializer: Any) -> Blob:
        return get_variable(name, self.shape, self.dtype, initializer, trainable=False)


def _parameter_dtype(inputs: Blob) -> torch.dtype:
    return torch.float32 if inputs.dtype in (torch.float16, torch.bfloat16) else inputs.dtype
