"""Checks of what resizing and normalising take, in jobs (``flow.image``) and on tensors (``flow.nn``). ``what`` is the
name in errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.data.arguments import at_least, positive
from oneflow.engine.data.decode import RandomCrop, Size
from oneflow.engine.data.image.crop import keep_aspect_size, shorter_side_size
from oneflow.engine.data.image.decode import COLORS

_METHODS = {
    "auto": "auto",
    "bilinear": "linear",
    "linear": "linear",
    "nearest_neighbor": "nearest",
    "nearest": "nearest",
    "nn": "nearest",
    "area": "area",
    "bicubic": "cubic",
    "cubic": "cubic",
}


def color(what: str, color_space: str) -> str:
    if color_space not in COLORS:
        raise ArgumentError(f"{what}: color_space is one of {', '.join(COLORS)}; got {color_space!r}")
    return color_space


def channels_of(color_space: str) -> int:
    return 1 if color_space == "GRAY" else 3


def method(what: str, interpolation: str) -> str:
    """The way of resizing of ``oneflow.engine.data.image`` that a name means."""
    found = _METHODS.get(interpolation.lower())
    if found is None:
        raise UnsupportedError(f"{what} interpolates by one of {', '.join(_METHODS)}; got {interpolation!r}")
    return found


def fixed_size(what: str, size: Any) -> Size:
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise ArgumentError(
            f"{what}: target_size is (width, height), got {size!r}; an int goes with keep_aspect_ratio=True"
        )
    positive(what, width=size[0], height=size[1])
    return size[0], size[1]


def shorter_size(what: str, shorter: int, is_fixed: bool) -> Callable[[int, int], Size]:
    """The new size of a picture whose shorter side becomes ``shorter``; ``is_fixed`` says that a size was given as
    well."""
    if is_fixed:
        raise ArgumentError(f"{what} takes resize_shorter, or resize_x and resize_y, not all of them")
    positive(what, resize_shorter=shorter)
    return partial(shorter_side_size, shorter=shorter)


def kept_aspect_size(
    what: str, target: Any, side: str, min_size: int | None, max_size: int | None
) -> Callable[[int, int], Size]:
    """The new size of a picture that keeps its aspect ratio, ``side`` of it becoming ``target``."""
    positive(what, target_size=target)
    _check_sides(what, side, min_size, max_size)
    return partial(keep_aspect_size, target=target, side=side, min_size=min_size, max_size=max_size)


def _check_sides(what: str, side: str, min_size: int | None, max_size: int | None) -> None:
    if side not in ("shorter", "longer"):
        raise ArgumentError(f"{what}: resize_side is 'shorter' or 'longer', got {side!r}")
    at_least(0, what, min_size=min_size or 0, max_size=max_size or 0)  # 0 and None are no limit


def layout(what: str, output_layout: str) -> str:
    """ "CHW" or "HWC"."""
    if output_layout not in ("NCHW", "NHWC"):
        raise ArgumentError(f"{what}: output_layout is 'NCHW' or 'NHWC', got {output_layout!r}")
    return output_layout[1:]


def check_numbers(what: str, mean: Sequence[float], std: Sequence[float], channels: int) -> None:
    for label, values in (("mean", mean), ("std", std)):
        if (
            not isinstance(values, (list, tuple))
            or len(values) not in (1, channels)
            or not all(isinstance(v, (int, float)) for v in values)
        ):
            raise ArgumentError(f"{what}: {label} is a list of 1 or {channels} numbers, got {values!r}")
    if not all(value > 0 for value in std):
        raise ArgumentError(f"{what}: std is above 0, got {std!r}")


def check_crop(what: str, height: int, width: int, pos_y: float, pos_x: float) -> None:
    at_least(0, what, crop_h=height, crop_w=width)
    if not (0 <= pos_y <= 1 and 0 <= pos_x <= 1):
        raise ArgumentError(f"{what}: crop_pos_y and crop_pos_x are from 0 to 1, got {pos_y!r} and {pos_x!r}")


def random_crop(what: str, attempts: int, salt: int, area: Sequence[float], ratio: Sequence[float]) -> RandomCrop:
    positive(what, num_attempts=attempts)
    for label, values, most in (("random_area", area, 1.0), ("random_aspect_ratio", ratio, float("inf"))):
        if len(values) != 2 or not 0 < values[0] <= values[1] <= most:
            raise ArgumentError(f"{what}: {label} is two numbers, 0 < low <= high <= {most}; got {values!r}")
    return RandomCrop((area[0], area[1]), (ratio[0], ratio[1]), attempts, salt)
