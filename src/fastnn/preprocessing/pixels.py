"""The picture operations of TensorFlow 1, on arrays of shape (height, width, channels), as float32.

They are not PIL's, torchvision's or ``torch.nn.functional``'s: resizing has its corner at (0, 0) without half-pixel
centres and without antialiasing, contrast keeps each channel's own mean, saturation goes by way of HSV. Random ones
take their numbers from ``draws``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from oneflow.engine.core.errors import ArgumentError

Picture = np.ndarray
Draws = Callable[[], float]
"""Uniform numbers in [0, 1), one per call."""
Window = tuple[int, int, int, int]
"""top, left, height, width"""

_CUBIC = -0.75
_CUBIC_STEPS = 1024  # TensorFlow reads the cubic's weights from a table of this size


# ------------------------------------------------------------------ random numbers


def uniform(draws: Draws, low: float, high: float) -> float:
    """In [low, high)."""
    return low + (high - low) * draws()


def whole(draws: Draws, low: int, high: int) -> int:
    """One of low, ..., high."""
    return low + min(int(draws() * (high - low + 1)), high - low)


# ------------------------------------------------------------------ resizing


def resize_bilinear(image: Picture, height: int, width: int, window: Window | None = None) -> Picture:
    """``image`` in another size, or the ``window`` of it alone."""
    top, left, rows, columns = window or (0, 0, height, width)
    y0, y1, fy = _neighbours(image.shape[0], height, top, rows)
    x0, x1, fx = _neighbours(image.shape[1], width, left, columns)
    first, last = x0[0], x1[-1] + 1  # columns that the window reads
    strip = image[:, first:last]
    above = strip[y0].astype(np.float32)
    above += (strip[y1] - above) * fy[:, None, None]
    before = above[:, x0 - first]
    return before + (above[:, x1 - first] - before) * fx[:, None]


def _neighbours(size: int, resized: int, start: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two source rows of each row, and how much of the second."""
    place = np.arange(start, start + count, dtype=np.float32) * np.float32(size / resized)
    low = np.minimum(np.floor(place).astype(np.int64), size - 1)
    return low, np.minimum(low + 1, size - 1), place - low.astype(np.float32)


def resize_nearest(image: Picture, height: int, width: int) -> Picture:
    """Each element is that of the source above and left of it."""
    rows, columns = _neighbours(image.shape[0], height, 0, height)[0], _neighbours(image.shape[1], width, 0, width)[0]
    return image[rows][:, columns].astype(np.float32)


def resize_bicubic(image: Picture, height: int, width: int) -> Picture:
    """By four source elements in each direction."""
    rows = _weighted(image.astype(np.float32), height, 0, _cubic_weights)
    return _weighted(rows, width, 1, _cubic_weights)


def resize_area(image: Picture, height: int, width: int) -> Picture:
    """Each element is the mean of the source area that it covers."""
    rows = _weighted(image.astype(np.float32), height, 0, _area_weights)
    return _weighted(rows, width, 1, _area_weights)


Weights = Callable[[int, int], np.ndarray]


def _weighted(image: Picture, resized: int, dim: int, weights: Weights) -> Picture:
    return np.moveaxis(np.tensordot(weights(image.shape[dim], resized), image, (1, dim)), 0, dim).astype(np.float32)


def _cubic_weights(size: int, resized: int) -> np.ndarray:
    """(resized, size)"""
    found = np.zeros((resized, size))
    for i in range(resized):
        place = np.float32(i) * np.float32(size / resized)
        low = int(place)
        t = round(float(place - low) * _CUBIC_STEPS) / _CUBIC_STEPS
        for offset, distance in ((-1, 1 + t), (0, t), (1, 1 - t), (2, 2 - t)):
            found[i, min(max(low + offset, 0), size - 1)] += _keys(distance)
    return found


def _keys(x: float) -> float:
    if x <= 1.0:
        return ((_CUBIC + 2.0) * x - (_CUBIC + 3.0)) * x * x + 1.0
    return ((_CUBIC * x - 5.0 * _CUBIC) * x + 8.0 * _CUBIC) * x - 4.0 * _CUBIC


def _area_weights(size: int, resized: int) -> np.ndarray:
    """(resized, size)"""
    scale = size / resized
    low = np.arange(resized)[:, None] * scale
    cover = np.minimum(low + scale, np.arange(size) + 1.0) - np.maximum(low, np.arange(size))
    return np.clip(cover, 0.0, None) / scale


# ------------------------------------------------------------------ crops


def central_fraction_window(height: int, width: int, fraction: float) -> Window:
    """The middle of a picture: ``fraction`` of each side, one more element where it does not come out even."""
    top, left = (int((side - side * fraction) / 2) for side in (height, width))
    return top, left, height - 2 * top, width - 2 * left


def crop(image: Picture, window: Window) -> Picture:
    """A view of the window."""
    top, left, height, width = window
    return image[top : top + height, left : left + width]


def crop_or_pad(image: Picture, height: int, width: int) -> Picture:
    """The middle of ``image``, with zeros around it where it is smaller; each side by itself."""
    for dim, wanted in enumerate((height, width)):
        size = image.shape[dim]
        if size > wanted:
            image = image.take(range((size - wanted) // 2, (size - wanted) // 2 + wanted), dim)
        elif size < wanted:
            before = (wanted - size) // 2
            image = np.pad(image, [(before, wanted - size - before) if d == dim else (0, 0) for d in range(3)])
    return image


def random_window(draws: Draws, height: int, width: int, rows: int, columns: int) -> Window:
    """A window of rows x columns anywhere in height x width."""
    if rows > height or columns > width:
        raise ArgumentError(
            f"a crop of {rows} x {columns} cannot be taken from a picture of {height} x {width}; make the picture "
            f"larger"
        )
    return whole(draws, 0, height - rows), whole(draws, 0, width - columns), rows, columns


def aspect_preserving_size(height: int, width: int, smallest: int) -> tuple[int, int]:
    """Height and width that make the shorter side ``smallest``; halves are rounded to even numbers, in float32 as
    TensorFlow does."""
    scale = np.float32(smallest) / np.float32(min(height, width))
    return int(np.rint(np.float32(height) * scale)), int(np.rint(np.float32(width) * scale))


def distorted_window(
    draws: Draws,
    height: int,
    width: int,
    boxes: np.ndarray | None = None,
    min_object_covered: float = 0.1,
    aspect_ratio_range: tuple[float, float] = (0.75, 1.33),
    area_range: tuple[float, float] = (0.05, 1.0),
    max_attempts: int = 100,
) -> Window:
    """A random window that covers enough of one of ``boxes`` ((n, 4) of ymin, xmin, ymax, xmax, each from 0 to 1; by
    default the whole picture). After ``max_attempts`` it is the whole picture."""
    objects = _in_elements(boxes, height, width)
    for _ in range(max_attempts):
        window = _attempt(draws, height, width, aspect_ratio_range, area_range)
        if window is not None and any(_covers(window, box, min_object_covered) for box in objects):
            return window
    return 0, 0, height, width


def _in_elements(boxes: np.ndarray | None, height: int, width: int) -> list[tuple[int, int, int, int]]:
    """ymin, xmin, ymax, xmax of each box, in rows and columns."""
    found = np.asarray([[0.0, 0.0, 1.0, 1.0]] if boxes is None or not np.size(boxes) else boxes, np.float32).reshape(
        -1, 4
    )
    if found.min() < 0 or found.max() > 1 or (found[:, :2] >= found[:, 2:]).any():
        raise ArgumentError(
            f"a box is ymin, xmin, ymax, xmax from 0 to 1, the first two below the others; got {found.tolist()}"
        )
    return [(int(y0 * height), int(x0 * width), int(y1 * height), int(x1 * width)) for y0, x0, y1, x1 in found.tolist()]


def _attempt(
    draws: Draws, height: int, width: int, aspects: tuple[float, float], areas: tuple[float, float]
) -> Window | None:
    """One window of a random shape at a random place; None where the shape does not fit."""
    aspect = uniform(draws, *aspects)
    least, most = (np.float32(area) * np.float32(width) * np.float32(height) for area in areas)
    low, high = (int(np.rint(math.sqrt(area / aspect))) for area in (least, most))
    if int(np.rint(high * aspect)) > width:
        high = int((width + 0.5 - 1e-7) / aspect)
        high -= int(np.rint(high * aspect)) > width
    high = min(high, height)
    rows = whole(draws, min(low, high), high)
    columns = int(np.rint(rows * aspect))
    if rows * columns < least:
        rows += 1
        columns = int(np.rint(rows * aspect))
    if rows * columns > most:
        rows -= 1
        columns = int(np.rint(rows * aspect))
    if not least <= rows * columns <= most or not 0 < columns <= width or not 0 < rows <= height:
        return None
    top = whole(draws, 0, height - rows - 1) if rows < height else 0
    left = whole(draws, 0, width - columns - 1) if columns < width else 0
    return top, left, rows, columns


def _covers(window: Window, box: tuple[int, int, int, int], least: float) -> bool:
    top, left, rows, columns = window
    y0, x0, y1, x1 = box
    area = (y1 - y0) * (x1 - x0)
    if rows * columns < 1 or area < 1:
        return False
    shared = max(0, min(y1, top + rows) - max(y0, top)) * max(0, min(x1, left + columns) - max(x0, left))
    return shared / area >= least


# ------------------------------------------------------------------ colours


def adjust_contrast(image: Picture, factor: float) -> Picture:
    """Away from the mean of each channel."""
    mean = image.mean((0, 1), dtype=np.float32)
    return (image - mean) * np.float32(factor) + mean


def adjust_saturation(image: Picture, factor: float) -> Picture:
    """S of HSV times ``factor``, at most 1. Hue and value stay, so each channel moves along its line to the largest
    one."""
    value = image.max(2, keepdims=True)
    span = value - image.min(2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(value > 0, np.minimum(np.float32(factor), value / span), np.float32(0))
    ratio[span == 0] = 0
    return value - (value - image) * ratio


def adjust_hue(image: Picture, delta: float) -> Picture:
    """H of HSV plus ``delta``, around the circle."""
    r, g, b = (image[..., c] for c in range(3))
    value = image.max(2)
    span = value - image.min(2)
    with np.errstate(divide="ignore", invalid="ignore"):
        sixth = np.where(value == r, (g - b) / span, np.where(value == g, (b - r) / span + 2, (r - g) / span + 4))
        saturation = np.where(value > 0, span / value, 0)
    hue = np.where(span > 0, sixth / 6, 0) + delta
    six = (hue - np.floor(hue)) * 6
    parts = np.stack([np.abs(six - 3) - 1, 2 - np.abs(six - 2), 2 - np.abs(six - 4)], 2).clip(0, 1)
    saturation = saturation[..., None]
    return (((1 - saturation) + saturation * parts) * value[..., None]).astype(np.float32)


def random_brightness(image: Picture, draws: Draws, largest: float) -> Picture:
    """Adds a number from [-largest, largest)."""
    return image + np.float32(uniform(draws, -largest, largest))


def random_contrast(image: Picture, draws: Draws, low: float, high: float) -> Picture:
    """``adjust_contrast`` by a factor from [low, high)."""
    return adjust_contrast(image, uniform(draws, low, high))


def random_saturation(image: Picture, draws: Draws, low: float, high: float) -> Picture:
    """``adjust_saturation`` by a factor from [low, high)."""
    return adjust_saturation(image, uniform(draws, low, high))


def random_hue(image: Picture, draws: Draws, largest: float) -> Picture:
    """``adjust_hue`` by a number from [-largest, largest)."""
    return adjust_hue(image, uniform(draws, -largest, largest))


def random_flip(image: Picture, draws: Draws) -> Picture:
    """Left and right change places, or not. A view."""
    return image[:, ::-1] if draws() < 0.5 else image


def standardized(image: Picture) -> Picture:
    """Mean 0 and deviation 1 over all elements; a picture of one colour becomes 0."""
    mean = image.mean(dtype=np.float64)
    deviation = max(float(image.std(dtype=np.float64)), 1.0 / math.sqrt(image.size))
    return ((image - np.float32(mean)) / np.float32(deviation)).astype(np.float32)


def grayscale(image: Picture) -> Picture:
    """One channel, as TensorFlow weighs the three."""
    return image @ np.array([[0.2989], [0.587], [0.114]], np.float32)


def require_picture(image: Picture, channels: Sequence[int] = (1, 3)) -> Picture:
    """The picture, where it is one: (height, width, channels)."""
    if image.ndim != 3 or image.shape[2] not in channels or not image.size:
        wanted = " or ".join(map(str, channels))
        raise ArgumentError(
            f"a picture has the shape (height, width, channels) with {wanted} channels, got {tuple(image.shape)}"
        )
    return image
