"""Sizes and matrices of transforms: arithmetic that pictures and tensors share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from oneflow.engine.core.errors import ArgumentError


def pair_of(what: str, value: Any) -> tuple[int, int]:
    """(height, width) of a number or of one or two of them."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, Sequence) and len(value) in (1, 2) and all(isinstance(number, int) for number in value):
        return int(value[0]), int(value[-1])
    raise ArgumentError(f"{what} is an int or (height, width), got {value!r}")


def resized(size: Any, height: int, width: int) -> tuple[int, int]:
    """The (height, width) that a picture is resized to: two numbers are taken as they are, one is the shorter side."""
    if isinstance(size, Sequence) and len(size) == 2:
        return pair_of("size", size)
    (short,) = size if isinstance(size, Sequence) and len(size) == 1 else (size,)
    if not isinstance(short, int) or short < 1:
        raise ArgumentError(f"size is an int, the shorter side, or (height, width), got {size!r}")
    if width <= height:
        return int(short * height / width), short
    return short, int(short * width / height)


def sides(padding: Any) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of one number for all, two for left and right, top and bottom, or four."""
    numbers = [padding] * 4 if isinstance(padding, int) else list(padding) if isinstance(padding, Sequence) else []
    if len(numbers) == 1:
        numbers *= 4
    elif len(numbers) == 2:
        numbers *= 2
    if len(numbers) != 4 or not all(isinstance(number, int) for number in numbers):
        raise ArgumentError(
            f"padding is an int, (left and right, top and bottom) or (left, top, right, bottom), got {padding!r}"
        )
    return numbers[0], numbers[1], numbers[2], numbers[3]


def inverse_affine(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> list[float]:
    """The six numbers that lead from a place of the result to the place it comes from.

    The result is the picture sheared, scaled and turned clockwise about ``center``, then moved: M = T C R S C^-1, here
    as its inverse.
    """
    turn, (shear_x, shear_y) = math.radians(angle), map(math.radians, shear)
    a = math.cos(turn - shear_y) / math.cos(shear_y)
    b = -a * math.tan(shear_x) - math.sin(turn)
    c = math.sin(turn - shear_y) / math.cos(shear_y)
    d = -c * math.tan(shear_x) + math.cos(turn)
    (cx, cy), (tx, ty) = center, translate
    x, y = -cx - tx, -cy - ty  # the determinant of [[a, b], [c, d]] is 1
    first, second = [d / scale, -b / scale], [-c / scale, a / scale]
    return [*first, first[0] * x + first[1] * y + cx, *second, second[0] * x + second[1] * y + cy]
