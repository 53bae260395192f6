"""``flow.layers``: dense, prelu, upsample_2d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.compat.spellings import spelled
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import flag, whole
from oneflow.engine.core.sbp import AUTO, BROADCAST, Sbp, split
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import activation as activations
from oneflow.engine.ops import conv as rows
from oneflow.engine.ops import pool
from oneflow.layers import _build as build
from oneflow.layers._build import Activation
from oneflow.nn import _arguments as arguments
from oneflow.nn._arguments import Size


def dense(
    inputs: Blob,
    units: int,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str | None = None,
    model_distribute: Sbp | None = None,
) -> Blob:
    """inputs · weightᵀ + bias over the last dimension, then ``activation``.

    Variables: ``<name>-weight`` (units, features) and, with ``use_bias``, ``<name>-bias`` (units,). Both are ZERO
    unless an initializer is given. Inputs have rank 2 or more. ``model_distribute`` lays out the variables:
    ``flow.distribute`` auto, broadcast, or split(0) for inputs of rank 2, which divides the units over the devices:
    each gets all inputs and makes its own outputs.
    """
    name = build.layer_name("Dense", name)
    rank = len(arguments.blob("inputs", inputs).shape)
    if rank < 2:
        raise ArgumentError(f"dense takes inputs of rank 2 or more, got {inputs!r}")
    _check_distribute(model_distribute, rank)
    width = whole("units", units, above=0)
    weight = build.weight(
        f"{name}-weight",
        (width, inputs.shape[-1]),
        inputs.dtype,
        kernel_initializer,
        kernel_regularizer,
        trainable,
        model_distribute,
    )
    terms = [weight]
    if flag("use_bias", use_bias):
        terms.append(
            build.bias(
                f"{name}-bias", width, inputs.dtype, bias_initializer, bias_regularizer, trainable, model_distribute
            )
        )
    if model_distribute is split(0) and inputs.parallel_size > 1:
        inputs = inputs.with_distribute(BROADCAST)
    return build.activate(emit(rows.dense, inputs, *terms, name=name), activation, name)


def _check_distribute(distribute: Sbp | None, rank: int) -> None:
    if distribute not in (None, AUTO, BROADCAST, split(0)):
        raise ArgumentError(f"model_distribute is auto, broadcast or split(0), got {distribute!r}")
    if distribute is split(0) and rank != 2:
        raise ArgumentError(f"model_distribute=split(0) takes inputs of rank 2, got rank {rank}")


def prelu(
    inputs: Blob,
    alpha_initializer: Any = None,
    alpha_regularizer: Any = None,
    shared_axes: int | Sequence[int] | None = None,
    trainable: bool = True,
    name: str | None = None,
    model_distribute: Sbp | None = None,
) -> Blob:
    """inputs where they are positive, alpha · inputs elsewhere.

    ``<name>-alpha`` has the shape of one sample, with extent 1 at ``shared_axes``; zeros unless an initializer is
    given.
    """
    name = build.layer_name("PRelu", name)
    rank = len(arguments.blob("inputs", inputs).shape)
    given = (
        [] if shared_axes is None else list(shared_axes) if isinstance(shared_axes, (list, tuple)) else [shared_axes]
    )
    shared = {arguments.axis_in("shared_axes", axis, rank) for axis in given}
    if rank < 2 or 0 in shared:
        raise ArgumentError(
            f"prelu takes inputs of rank 2 or more and shares alpha over axes after the batch; got {inputs!r}"
        )
    shape = tuple(1 if axis in shared else inputs.shape[axis] for axis in range(1, rank))
    alpha = build.weight(
        f"{name}-alpha", shape, inputs.dtype, alpha_initializer, alpha_regularizer, trainable, model_distribute
    )
    return emit(activations.prelu, inputs, alpha, name=name)


@spelled("layers.upsample_2d")
def upsample_2d(
    x: Blob,
    size: Size = (2, 2),
    align_corners: bool = False,
    data_format: str = "NCHW",
    interpolation: str = "nearest",
    name: str | None = None,
) -> Blob:
    """Images ``size`` times as high and wide; ``interpolation`` is "nearest" or "bilinear".

    Pixels are compared by their centres; with ``align_corners``, for "bilinear" alone, the corners of both images meet
    instead.
    """
    if interpolation not in ("nearest", "bilinear"):
        raise ArgumentError(f"interpolation is 'nearest' or 'bilinear', got {interpolation!r}")
    if flag("align_corners", align_corners) and interpolation != "bilinear":
        raise ArgumentError("align_corners is for interpolation='bilinear'; 'nearest' has no corners to align")
    name = build.layer_name("Upsample2D", name)
    last = arguments.channels_last(data_format, 2)
    factors = arguments.per_dim("size", size, 2)
    bilinear = interpolation == "bilinear"
    return emit(
        pool.upsample_2d, x, name=name, size=factors, bilinear=bilinear, align_corners=align_corners, channels_last=last
    )
