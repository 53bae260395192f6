"""From a compressed picture straight into its place in a batch: decode, crop, resize, cut, flip, normalise.

Two implementations give the same pixels within one level: the one here, and ``native``, a C extension that decodes only
the part of a JPEG that is needed. The extension is optional; ``ONEFLOW_IMAGE_BACKEND=python`` leaves it aside.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.image import native
from oneflow.engine.data.image.crop import Window, center_crop
from oneflow.engine.data.image.decode import COLORS, Bytes, check_color, check_pixels, decode, is_jpeg
from oneflow.engine.data.image.resize import METHODS, auto_method, check_method, resize

Size = tuple[int, int]
Slot = np.ndarray | torch.Tensor
_Numbers = tuple[float, ...]


def decode_crop_resize_normalize(
    data: Bytes,
    window: Window | Callable[[int, int], Window] | None,
    size: Size | Callable[[int, int], Size] | None,
    flip: bool,
    mean: Sequence[float],
    std: Sequence[float],
    out: Slot,
    *,
    method: str = "antialias",
    color: str = "RGB",
    layout: str = "CHW",
    anchor: tuple[float, float] = (0.5, 0.5),
) -> None:
    """Writes one picture into ``out``, a float32 array or tensor of (C, H, W), or (H, W, C) with ``layout="HWC"``.

    ``window`` is the part of the picture to take (or a function of the picture's width and height; None: all of it),
    ``size`` the (width, height) it is resized to by ``method`` (or a function of the window's width and height; None:
    that of ``out``). If that is larger than ``out``, the part at ``anchor`` is cut out of it, as ``center_crop`` says.
    Then ``flip`` mirrors it left to right, and a pixel becomes ``(level - mean) / std`` with levels 0 to 255 and one
    mean and std for all channels or one per channel.
    """
    check_color(color)
    check_method(method)
    target = _target(out, color, layout)
    factor, offset = _scale(tuple(mean), tuple(std), len(target))

    def cuts(width: int, height: int) -> tuple[Window, Size, Window]:
        part = _window(window, width, height)
        new = _size(size, part, target)
        return part, new, center_crop(*new, target.shape[2], target.shape[1], anchor)

    task = _Task(cuts, flip, factor, offset, target, color, method)
    if backend() == "python" or method == "cubic" or not is_jpeg(data) or not _load_native(data, task):
        _load(data, task)


class _Task(NamedTuple):
    """What to do with a picture; ``cuts`` says of its width and height the window, the new size and the part of that to
    keep."""

    cuts: Callable[[int, int], tuple[Window, Size, Window]]
    flip: bool
    factor: _Numbers
    offset: _Numbers
    target: np.ndarray
    color: str
    method: str


def backend() -> str:
    """Which implementation is used: "native" or "python"."""
    asked = os.environ.get("ONEFLOW_IMAGE_BACKEND", "")
    if asked not in ("", "native", "python"):
        raise ArgumentError(f"ONEFLOW_IMAGE_BACKEND is 'native' or 'python', got {asked!r}")
    if asked == "native" and native.library is None:
        raise ArgumentError(
            "ONEFLOW_IMAGE_BACKEND=native, but the extension was not built; install with a C compiler and "
            "libjpeg-turbo's headers"
        )
    return "python" if asked == "python" or native.library is None else "native"


def _load(data: Bytes, task: _Task) -> None:
    image = decode(data, task.color)
    part, new, cut = task.cuts(image.shape[1], image.shape[0])
    image = resize(image[part.y : part.y + part.h, part.x : part.x + part.w], *new, task.method)
    planes = image[cut.y : cut.y + cut.h, cut.x : cut.x + cut.w].transpose(2, 0, 1)
    np.copyto(task.target, planes[:, :, ::-1] if task.flip else planes)
    np.multiply(task.target, np.asarray(task.factor, np.float32)[:, None, None], out=task.target)
    np.add(task.target, np.asarray(task.offset, np.float32)[:, None, None], out=task.target)


def _load_native(data: Bytes, task: _Task) -> bool:
    """Like ``_load``; False, with nothing done, for a JPEG in colours that the extension does not convert.

    Rows below the window are not decoded: damage there goes unseen, only a missing end of the file is noticed.
    """
    assert native.library is not None
    size = _call(native.library.header, data)
    if size is None:
        return False
    check_pixels(*size)
    part, new, cut = task.cuts(*size)
    method = auto_method(part.w, part.h, *new) if task.method == "auto" else task.method
    factor, offset = (values if len(values) == 3 else values * 3 for values in (task.factor, task.offset))
    _call(
        native.library.load,
        data,
        task.target,
        part,
        new,
        cut,
        task.flip,
        COLORS.index(task.color),
        METHODS.index(method),
        factor,
        offset,
    )
    return True


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError as error:
        raise DataError(f"broken JPEG: {error}") from None


def _target(out: Slot, color: str, layout: str) -> np.ndarray:
    """``out`` as an array of (C, H, W)."""
    array = out.numpy() if isinstance(out, torch.Tensor) else out
    channels = 1 if color == "GRAY" else 3
    if layout not in ("CHW", "HWC"):
        raise ArgumentError(f"layout is 'CHW' or 'HWC', got {layout!r}")
    if array.ndim != 3 or array.shape[layout.index("C")] != channels or array.dtype != np.float32:
        raise ArgumentError(
            f"a {color} picture in {layout} is written to float32 of {channels} channels, got {array.dtype} of "
            f"{array.shape}"
        )
    return array if layout == "CHW" else array.transpose(2, 0, 1)


def _window(window: Window | Callable[[int, int], Window] | None, width: int, height: int) -> Window:
    if window is None:
        return Window(0, 0, width, height)
    part = window(width, height) if callable(window) else window
    part.check(width, height)
    return part


def _size(size: Size | Callable[[int, int], Size] | None, part: Window, target: np.ndarray) -> Size:
    if size is None:
        return target.shape[2], target.shape[1]
    return size(part.w, part.h) if callable(size) else size


@functools.lru_cache(maxsize=64)
def _scale(mean: _Numbers, std: _Numbers, channels: int) -> tuple[_Numbers, _Numbers]:
    """Factor and offset of each channel: ``level * factor + offset`` is ``(level - mean) / std``."""
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, channels):
            raise ArgumentError(f"{name} has 1 or {channels} numbers, got {values}")
    if min(std) <= 0:
        raise ArgumentError(f"std must be above 0, got {std}")
    means, stds = (values * (channels // len(values)) for values in (mean, std))
    return tuple(1 / s for s in stds), tuple(-m / s for m, s in zip(means, stds))
