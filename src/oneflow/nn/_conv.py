"""``flow.nn``: convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.compat.spellings import spelled
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.core.number import whole, wholes
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ops import conv as rows
from oneflow.engine.ops import padding as pads
from oneflow.engine.ops.row import Op
from oneflow.nn import _arguments as arguments
from oneflow.nn._arguments import Size

Padding = str | Sequence[int | Sequence[int]]


def conv1d(
    input: Blob,
    filters: Blob,
    strides: Size,
    padding: Padding = "VALID",
    data_format: str = "NCW",
    dilations: Size | None = None,
    groups: int = 1,
    name: str | None = None,
    *,
    bias: Blob | None = None,
) -> Blob:
    """Convolution of sequences; ``conv2d`` with one spatial dimension."""
    return _convolution(rows.conv1d, 1, input, filters, bias, strides, padding, data_format, dilations, groups, name)


@spelled("nn.conv2d")
def conv2d(
    input: Blob,
    filters: Blob,
    strides: Size,
    padding: Padding,
    bias: Blob | None = None,
    data_format: str = "NCHW",
    dilations: Size | None = None,
    groups: int = 1,
    name: str | None = None,
) -> Blob:
    """Convolution of images.

    Filters have shape (out, in / groups, kh, kw) for "NCHW" and (out, kh, kw, in / groups) for "NHWC". ``padding`` is
    "VALID", "SAME" (= "SAME_LOWER": the odd zero comes before), "SAME_UPPER" or a list with an int or (before, after)
    for each of the four dimensions. ``bias`` has shape (out,).
    """
    return _convolution(rows.conv2d, 2, input, filters, bias, strides, padding, data_format, dilations, groups, name)


def compat_conv2d(
    input: Blob,
    filters: Blob,
    strides: Size,
    padding: Padding,
    data_format: str = "NCHW",
    dilations: Size | None = None,
    groups: int = 1,
    name: str | None = None,
) -> Blob:
    """``conv2d`` in which "SAME" means "SAME_UPPER": the odd zero comes after."""
    return _convolution(
        rows.conv2d, 2, input, filters, None, strides, padding, data_format, dilations, groups, name, same_is_upper=True
    )


def conv3d(
    input: Blob,
    filters: Blob,
    strides: Size,
    padding: Padding,
    data_format: str = "NCDHW",
    dilations: Size | None = None,
    groups: int = 1,
    name: str | None = None,
    *,
    bias: Blob | None = None,
) -> Blob:
    """Convolution of volumes; ``conv2d`` with three spatial dimensions."""
    return _convolution(rows.conv3d, 3, input, filters, bias, strides, padding, data_format, dilations, groups, name)


def _convolution(
    op: Op,
    dims: int,
    input: Blob,
    filters: Blob,
    bias: Blob | None,
    strides: Size,
    padding: Padding,
    data_format: str,
    dilations: Size | None,
    groups: int,
    name: str | None,
    same_is_upper: bool = False,
) -> Blob:
    trace = require_trace(f"flow.{op.name}")
    last = arguments.channels_last(data_format, dims)
    x, w = arguments.blob("input", input, dims + 2), arguments.blob("filters", filters, dims + 2)
    steps = arguments.per_dim("strides", strides, dims)
    spread = arguments.per_dim("dilations", 1 if dilations is None else dilations, dims)
    parts = whole("groups", groups, above=0)
    if dims == 2 and not last:
        trace.mark_channels_last(w.node)
    kernels = [pads.extent(k, d) for k, d in zip(arguments.spatial(w, last), spread)]
    around = pads.explicit(padding, arguments.spatial(x, last), kernels, steps, last, same_is_upper)
    blobs = [x, w] if bias is None else [x, w, bias]
    return emit(op, *blobs, name=name, strides=steps, pads=around, dilations=spread, groups=parts, channels_last=last)


def conv2d_transpose(
    value: Blob | None = None,
    filter: Blob | None = None,
    output_shape: Sequence[int] | None = None,
    strides: Size = 1,
    padding: Padding = "VALID",
    data_format: str = "NCHW",
    name: str | None = None,
    input: Blob | None = None,
    filters: Blob | None = None,
    dilations: Size | None = None,
) -> Blob:
    """The transpose (gradient) of the convolution that makes ``value`` from a blob of ``output_shape``.

    Filters have shape (in, out, kh, kw) for "NCHW" and (in, kh, kw, out) for "NHWC", where ``in`` counts the channels
    of ``value``. ``output_shape`` has four numbers in data_format order, of which height and width count; batch and
    channels are those of ``value`` and of the filters. ``padding`` is that of the convolution: "VALID", "SAME" (=
    "SAME_UPPER": of an odd number of zeros more come after), "SAME_LOWER" or a list as ``conv2d`` takes it. ``input``
    and ``filters`` are other names of ``value`` and ``filter``.
    """
    last = arguments.channels_last(data_format, 2)
    x = arguments.blob("value", input if value is None else value, 4)
    w = arguments.blob("filter", filters if filter is None else filter, 4)
    steps = arguments.per_dim("strides", strides, 2)
    spread = arguments.per_dim("dilations", 1 if dilations is None else dilations, 2)
    size = _output_size(output_shape, last)
    kernels = [pads.extent(k, d) for k, d in zip(arguments.spatial(w, last), spread)]
    around = pads.explicit(padding, size, kernels, steps, last, same_is_upper=True)
    return emit(
        rows.conv2d_transpose,
        x,
        w,
        name=name,
        output_size=size,
        strides=steps,
        pads=around,
        dilations=spread,
        channels_last=last,
    )


def torch_conv2d_transpose(
    value: Blob | None = None,
    filter: Blob | None = None,
    output_padding: Size | None = None,
    strides: Size | None = None,
    padding_needed: Size | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
    input: Blob | None = None,
    filters: Blob | None = None,
    dilations: Size | None = None,
) -> Blob:
    """``conv2d_transpose`` by the sizes that torch gives: ``padding_needed`` is what is cut off a dimension in all,
    half of it in front, and ``output_padding`` what is added behind."""
    last = arguments.channels_last(data_format, 2)
    x = arguments.blob("value", input if value is None else value, 4)
    w = arguments.blob("filter", filters if filter is None else filter, 4)
    steps = arguments.per_dim("strides", 1 if strides is None else strides, 2)
    spread = arguments.per_dim("dilations", 1 if dilations is None else dilations, 2)
    more, cut = _two("output_padding", output_padding), _two("padding_needed", padding_needed)
    kernels = [pads.extent(k, d) for k, d in zip(arguments.spatial(w, last), spread)]
    size = tuple(
        (n - 1) * s + k - c + m for n, s, k, c, m in zip(arguments.spatial(x, last), steps, kernels, cut, more)
    )
    around = tuple((c // 2, c - c // 2 - m) for c, m in zip(cut, more))
    return emit(
        rows.conv2d_transpose,
        x,
        w,
        name=name,
        output_size=size,
        strides=steps,
        pads=around,
        dilations=spread,
        channels_last=last,
    )


def _two(what: str, value: Any) -> tuple[int, int]:
    """Two ints of 0 or more; one stands for both."""
    given = wholes(value if isinstance(value, (list, tuple)) else [0 if value is None else value])
    if given is None or len(given) not in (1, 2) or min(given) < 0:
        raise ArgumentError(f"{what} is an int of 0 or more, or two of them; got {value!r}")
    return (given[0], given[-1])


def _output_size(output_shape: Any, last: bool) -> tuple[int, ...]:
    shape = wholes(output_shape) or ()
    size = shape[1:-1] if last else shape[2:]
    if len(shape) != 4 or min(size) < 1:
        raise ArgumentError(f"output_shape has four ints, with a height and a width > 0; got {output_shape!r}")
    return size


def bias_add(value: Blob, bias: Blob, data_format: str | None = None, name: str | None = None) -> Blob:
    """``value`` + ``bias`` along the channels: dimension 1 if data_format is None or begins with "NC", the last if it
    is "N...C"."""
    x, b = arguments.blob("value", value), arguments.blob("bias", bias, 1)
    if x.dtype != b.dtype:
        raise DTypeError(f"value is {x.spec.dtype.name} and bias is {b.spec.dtype.name}; cast one of them")
    if data_format is None or data_format.startswith("NC"):
        dim = 1
    elif data_format.startswith("N") and data_format.endswith("C"):
        dim = len(x.shape) - 1
    else:
        raise ArgumentError(f"data_format begins with 'NC' or has the form 'N...C', got {data_format!r}")
    return emit(rows.bias_add, x, b, name=name, dim=dim)
