"""``flow.layers``: convolutions with variables of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import as_whole, flag, whole
from oneflow.engine.ir.blob import Blob
from oneflow.layers import _build as build
from oneflow.layers._build import Activation
from oneflow.nn import _arguments as arguments
from oneflow.nn import _conv as nn
from oneflow.nn._arguments import Size
from oneflow.nn._conv import Padding


def conv1d(
    inputs: Blob,
    filters: int,
    kernel_size: Size = 1,
    strides: Size = 1,
    padding: Padding = "VALID",
    data_format: str = "NCW",
    dilation_rate: Size | None = None,
    groups: int = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str | None = None,
    weight_name: str | None = None,
    bias_name: str | None = None,
) -> Blob:
    """``conv2d`` with one spatial dimension."""
    window = _Window(1, kernel_size, strides, padding, data_format, dilation_rate, groups)
    kernel = _Initial(kernel_initializer, kernel_regularizer, weight_name)
    bias = _Initial(bias_initializer, bias_regularizer, bias_name) if flag("use_bias", use_bias) else None
    return _layer("Conv1d", nn.conv1d, inputs, filters, window, kernel, bias, trainable, activation, name)


def conv2d(
    inputs: Blob,
    filters: int,
    kernel_size: Size = 1,
    strides: Size = 1,
    padding: Padding = "VALID",
    data_format: str = "NCHW",
    dilation_rate: Size | None = None,
    groups: int = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str | None = None,
    weight_name: str | None = None,
    bias_name: str | None = None,
) -> Blob:
    """Convolution of images with ``filters`` filters, then ``activation``. ``padding`` as in ``flow.nn.conv2d``.

    Variables: ``<name>-weight``, (filters, C / groups, kh, kw) for "NCHW" or (filters, kh, kw, C / groups) for "NHWC",
    and, with ``use_bias``, ``<name>-bias`` (filters,). Both are ZERO unless an initializer is given. ``weight_name``
    and ``bias_name`` replace these names.
    """
    window = _Window(2, kernel_size, strides, padding, data_format, dilation_rate, groups)
    kernel = _Initial(kernel_initializer, kernel_regularizer, weight_name)
    bias = _Initial(bias_initializer, bias_regularizer, bias_name) if flag("use_bias", use_bias) else None
    return _layer("Conv2d", nn.conv2d, inputs, filters, window, kernel, bias, trainable, activation, name)


def conv3d(
    inputs: Blob,
    filters: int,
    kernel_size: Size = 1,
    strides: Size = 1,
    padding: Padding = "VALID",
    data_format: str = "NCDHW",
    dilation_rate: Size | None = None,
    groups: int = 1,
    activation: Activation | None = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    trainable: bool = True,
    name: str | None = None,
    weight_name: str | None = None,
    bias_name: str | None = None,
) -> Blob:
    """``conv2d`` with three spatial dimensions."""
    window = _Window(3, kernel_size, strides, padding, data_format, dilation_rate, groups)
    kernel = _Initial(kernel_initializer, kernel_regularizer, weight_name)
    bias = _Initial(bias_initializer, bias_regularizer, bias_name) if flag("use_bias", use_bias) else None
    return _layer("Conv3d", nn.conv3d, inputs, filters, window, kernel, bias, trainable, activation, name)


@dataclass(frozen=True)
class _Window:
    """What slides over the input, and how."""

    dims: int
    kernel_size: Size
    strides: Size
    padding: Padding
    data_format: str
    dilations: Size | None
    groups: int


@dataclass(frozen=True)
class _Initial:
    """How a variable begins, what holds it back, and its name if it has one of its own."""

    initializer: Any
    regularizer: Any
    name: str | None


def _layer(
    kind: str,
    convolve: Callable[..., Blob],
    inputs: Blob,
    filters: int,
    window: _Window,
    kernel: _Initial,
    bias: _Initial | None,
    trainable: bool,
    activation: Activation | None,
    name: str | None,
) -> Blob:
    name = build.layer_name(kind, name)
    x = arguments.blob("inputs", inputs, window.dims + 2)
    shape = _kernel_shape(x, whole("filters", filters, above=0), window)
    weight = build.weight(
        kernel.name or f"{name}-weight", shape, x.dtype, kernel.initializer, kernel.regularizer, trainable
    )
    offset = None
    if bias is not None:
        offset = build.bias(
            bias.name or f"{name}-bias", shape[0], x.dtype, bias.initializer, bias.regularizer, trainable
        )
    out = convolve(
        x,
        weight,
        window.strides,
        window.padding,
        window.data_format,
        window.dilations,
        window.groups,
        bias=offset,
        name=name,
    )
    return build.activate(out, activation, name)


def _kernel_shape(inputs: Blob, filters: int, window: _Window) -> tuple[int, ...]:
    last = arguments.channels_last(window.data_format, window.dims)
    channels, groups = arguments.channels(inputs, last), as_whole(window.groups)
    extents = arguments.per_dim("kernel_size", window.kernel_size, window.dims)
    if groups is None or groups < 1 or channels % groups or filters % groups:
        raise ArgumentError(
            f"groups divides the {channels} channels of the input and the {filters} filters, got {window.groups!r}"
        )
    return (filters, *extents, channels // groups) if last else (filters, channels // groups, *extents)
