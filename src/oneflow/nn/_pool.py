"""``flow.nn``: pools, and pixel shuffling.

A pool that is given no ``data_format`` has that of ``flow.compat.pool_default``. Averages divide by the elements of the
window that are not padding. With ``ceil_mode`` a last window that only partly covers the input counts too.
"""

from __future__ import annotations

from oneflow.compat import compat
from oneflow.compat.spellings import spelled
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import padding as pads
from oneflow.engine.ops import pool as rows
from oneflow.engine.ops.row import Op
from oneflow.nn import _arguments as arguments
from oneflow.nn._arguments import Size
from oneflow.nn._conv import Padding


@spelled("nn.max_pool1d")
def max_pool1d(
    input: Blob,
    ksize: Size,
    strides: Size,
    padding: Padding,
    data_format: str | None = None,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The largest element of each window; "NCW" or "NWC"."""
    return _pool(rows.max_pool1d, 1, input, ksize, strides, padding, data_format, ceil_mode, name)


def max_pool2d(
    input: Blob,
    ksize: Size,
    strides: Size,
    padding: Padding,
    data_format: str | None = None,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The largest element of each window; "NCHW" or "NHWC". ``padding`` as in ``conv2d``."""
    return _pool(rows.max_pool2d, 2, input, ksize, strides, padding, data_format, ceil_mode, name)


def max_pool3d(
    input: Blob,
    ksize: Size,
    strides: Size,
    padding: Padding,
    data_format: str | None = None,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The largest element of each window; "NCDHW" or "NDHWC"."""
    return _pool(rows.max_pool3d, 3, input, ksize, strides, padding, data_format, ceil_mode, name)


@spelled("nn.avg_pool1d")
def avg_pool1d(
    input: Blob,
    ksize: Size,
    strides: Size,
    padding: Padding,
    data_format: str | None = None,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The mean of each window; "NCW" or "NWC"."""
    return _pool(rows.avg_pool1d, 1, input, ksize, strides, padding, data_format, ceil_mode, name)


def avg_pool2d(
    input: Blob,
    ksize: Size,
    strides: Size,
    padding: Padding,
    data_format: str | None = None,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The mean of each window; "NCHW" or "NHWC". ``padding`` as in ``conv2d``."""
    return _pool(rows.avg_pool2d, 2, input, ksize, strides, padding, data_format, ceil_mode, name)


def avg_pool3d(
    input: Blob,
    ksize: Size,
    strides: Size,
    padding: Padding,
    data_format: str | None = None,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Blob:
    """The mean of each window; "NCDHW" or "NDHWC"."""
    return _pool(rows.avg_pool3d, 3, input, ksize, strides, padding, data_format, ceil_mode, name)


def _pool(
    op: Op,
    dims: int,
    input: Blob,
    ksize: Size,
    strides: Size,
    padding: Padding,
    data_format: str | None,
    ceil_mode: bool,
    name: str | None,
) -> Blob:
    last = _channels_last(data_format, dims)
    sizes = arguments.spatial(arguments.blob("input", input, dims + 2), last)
    window = arguments.per_dim("ksize", ksize, dims)
    steps = arguments.per_dim("strides", strides, dims)
    around = pads.explicit(padding, sizes, window, steps, last)
    if ceil_mode:
        around = pads.ceiled(around, sizes, window, steps)
    return emit(op, input, name=name, ksize=window, strides=steps, pads=around, channels_last=last)


def _channels_last(data_format: str | None, dims: int) -> bool:
    if data_format is None:
        return compat.pool_default == "NHWC"
    return arguments.channels_last(
        data_format.removesuffix("_VECT_C") if isinstance(data_format, str) else data_format, dims
    )


def PixelShuffle(input: Blob, upscale_factor: int, name: str | None = None) -> Blob:
    """(N, C·f², H, W) to (N, C, H·f, W·f) with f = ``upscale_factor``: channels become pixels."""
    return PixelShufflev2(input, upscale_factor, upscale_factor, name)


def PixelShufflev2(input: Blob, h_upscale_factor: int, w_upscale_factor: int, name: str | None = None) -> Blob:
    """``PixelShuffle`` with one factor for the height and one for the width."""
    height, width = arguments.per_dim("upscale factor", [h_upscale_factor, w_upscale_factor], 2)
    return emit(rows.pixel_shuffle, input, name=name, height=height, width=width)
