"""Which part of a picture is taken, and how large it becomes. Numbers only, no pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from oneflow.engine.core.errors import ArgumentError, DataError


class Window(NamedTuple):
    """A rectangle of whole pixels: its left upper corner, its width and its height."""

    x: int
    y: int
    w: int
    h: int

    def check(self, width: int, height: int) -> None:
        """A window that is empty or reaches out of a picture of this size is an ``ArgumentError``."""
        if not (self.w > 0 and self.h > 0 and 0 <= self.x <= width - self.w and 0 <= self.y <= height - self.h):
            raise ArgumentError(f"{self} does not lie within a picture of {width} x {height}")


def random_crop_window(
    width: int,
    height: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
    attempts: int,
    rng: Callable[[], float],
) -> Window:
    """A window of random area (a share of the picture's) and random aspect ratio (width by height), at a random place.

    The area is uniform, the ratio uniform in its logarithm. ``rng`` gives uniform numbers in [0, 1): two an attempt,
    then one for y and one for x. If no attempt fits, the window is the largest one of an allowed ratio.
    """
    if not (0 < area[0] <= area[1] <= 1 and 0 < ratio[0] <= ratio[1] and attempts >= 0):
        raise ArgumentError(
            f"a random crop takes 0 < area <= 1 and 0 < ratio, each (low, high), and attempts >= 0; got {area}, "
            f"{ratio}, {attempts}"
        )
    w, h = _random_size(width, height, area, ratio, attempts, rng) or _largest_size(width, height, ratio)
    y = int(rng() * (height - h + 1))
    x = int(rng() * (width - w + 1))
    return Window(x, y, w, h)


def _random_size(
    width: int,
    height: int,
    area: tuple[float, float],
    ratio: tuple[float, float],
    attempts: int,
    rng: Callable[[], float],
) -> tuple[int, int] | None:
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(attempts):
        pixels = width * height * (area[0] + (area[1] - area[0]) * rng())
        aspect = math.exp(low + (high - low) * rng())
        w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < w <= width and 0 < h <= height and ratio[0] <= w / h <= ratio[1]:
            return w, h
    return None


def _largest_size(width: int, height: int, ratio: tuple[float, float]) -> tuple[int, int]:
    aspect = min(max(width / height, ratio[0]), ratio[1])
    return min(width, max(1, round(height * aspect))), min(height, max(1, round(width / aspect)))


def center_crop(
    width: int, height: int, crop_width: int, crop_height: int, anchor: tuple[float, float] = (0.5, 0.5)
) -> Window:
    """The window of ``crop_width`` x ``crop_height`` whose free space is divided by ``anchor`` (x, y): 0.5 is the
    middle, 0 left or top."""
    if crop_width > width or crop_height > height:
        raise DataError(f"a crop of {crop_width} x {crop_height} does not fit in a picture of {width} x {height}")
    return Window(
        int((width - crop_width) * anchor[0]), int((height - crop_height) * anchor[1]), crop_width, crop_height
    )


def aspect_window(width: int, height: int, aspect: float) -> Window:
    """The largest window of an aspect ratio (width by height), in the middle."""
    return center_crop(width, height, *_largest_size(width, height, (aspect, aspect)))


def shorter_side_size(width: int, height: int, shorter: int) -> tuple[int, int]:
    """Width and height with the shorter side made ``shorter``; the other follows, its fraction cut off."""
    if width < height:
        return shorter, shorter * height // width
    return shorter * width // height, shorter


def keep_aspect_size(
    width: int,
    height: int,
    target: int,
    side: str = "shorter",
    min_size: int | None = None,
    max_size: int | None = None,
) -> tuple[int, int]:
    """Width and height with the ``side`` ("shorter" or "longer") made ``target``; the other is rounded, halves to the
    even number.

    ``max_size`` limits the longer side when the shorter is given, ``min_size`` the shorter one when the longer is
    given.
    """
    if side not in ("shorter", "longer"):
        raise ArgumentError(f"side is 'shorter' or 'longer', got {side!r}")
    short, long = min(width, height), max(width, height)
    if side == "shorter":
        new_short, new_long = target, round(target * long / short)
        if max_size and new_long > max_size:
            new_short, new_long = round(max_size * short / long), max_size
    else:
        new_short, new_long = round(target * short / long), target
        if min_size and new_short < min_size:
            new_short, new_long = min_size, round(min_size * long / short)
    new_short, new_long = max(1, new_short), max(1, new_long)
    return (new_short, new_long) if width < height else (new_long, new_short)
