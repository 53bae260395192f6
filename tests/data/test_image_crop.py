from __future__ import annotations

import random

import numpy as np
import pytest

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.image import (
    Window,
    aspect_window,
    center_crop,
    keep_aspect_size,
    random_crop_window,
    shorter_side_size,
)

AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


def test_random_windows_lie_within_and_keep_area_and_ratio() -> None:
    rng = random.Random(0).random
    areas = []
    for _ in range(2000):
        window = random_crop_window(500, 375, AREA, RATIO, 10, rng)
        window.check(500, 375)
        areas.append(window.w * window.h / (500 * 375))
        assert 0.745 < window.w / window.h < 1.34
    assert min(areas) > 0.078
    assert 0.4 < np.mean(areas) < 0.5  # large areas fit less often


def test_random_windows_reach_every_edge() -> None:
    rng = random.Random(1).random
    windows = [random_crop_window(40, 30, (0.2, 0.5), RATIO, 10, rng) for _ in range(2000)]
    assert {w.x for w in windows} >= {0, 1} and any(w.x + w.w == 40 for w in windows)
    assert {w.y for w in windows} >= {0, 1} and any(w.y + w.h == 30 for w in windows)


def test_the_numbers_drawn_decide() -> None:
    numbers = iter([0.0, 0.5, 0.5, 0.0])  # area 0.25, ratio 1, then y, then x
    assert random_crop_window(100, 100, (0.25, 1), (0.5, 2), 10, lambda: next(numbers)) == Window(0, 25, 50, 50)


@pytest.mark.parametrize(("size", "expected"), [((300, 10), (13, 10)), ((10, 300), (10, 13)), ((40, 40), (40, 40))])
def test_without_a_fitting_attempt_the_largest_window_is_taken(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    window = random_crop_window(*size, AREA, RATIO, 0, random.Random(0).random)
    assert (window.w, window.h) == expected
    window.check(*size)


def test_a_picture_of_one_pixel() -> None:
    assert random_crop_window(1, 1, AREA, RATIO, 10, random.Random(0).random) == Window(0, 0, 1, 1)


@pytest.mark.parametrize(
    "arguments",
    [((0, 1), RATIO, 1), ((0.5, 0.1), RATIO, 1), ((0.1, 1.5), RATIO, 1), (AREA, (0, 1), 1), (AREA, RATIO, -1)],
)
def test_wrong_ranges(arguments: tuple) -> None:
    with pytest.raises(ArgumentError, match="random crop"):
        random_crop_window(10, 10, *arguments, random.random)


def test_center_crop_cuts_off_fractions() -> None:
    assert center_crop(11, 8, 4, 4) == Window(3, 2, 4, 4)
    assert center_crop(11, 8, 4, 4, (0.0, 1.0)) == Window(0, 4, 4, 4)
    with pytest.raises(DataError, match="12 x 4 does not fit in a picture of 11 x 8"):
        center_crop(11, 8, 12, 4)


def test_aspect_window() -> None:
    assert aspect_window(500, 375, 1.0) == Window(62, 0, 375, 375)
    assert aspect_window(100, 300, 2.0) == Window(0, 125, 100, 50)


def test_shorter_side_cuts_off_the_fraction() -> None:
    assert shorter_side_size(500, 375, 256) == (341, 256)
    assert shorter_side_size(375, 500, 256) == (256, 341)
    assert shorter_side_size(300, 300, 256) == (256, 256)


def test_keep_aspect_rounds_halves_to_even() -> None:
    assert keep_aspect_size(5, 2, 1) == (2, 1)
    assert keep_aspect_size(7, 2, 1) == (4, 1)
    assert keep_aspect_size(500, 375, 256) == (341, 256)
    assert keep_aspect_size(500, 375, 256, max_size=300) == (300, 225)
    assert keep_aspect_size(375, 500, 100, "longer") == (75, 100)
    assert keep_aspect_size(100, 1000, 100, "longer", min_size=20) == (20, 200)
    with pytest.raises(ArgumentError, match="'wider'"):
        keep_aspect_size(5, 2, 1, "wider")


@pytest.mark.parametrize("window", [Window(-1, 0, 2, 2), Window(0, 0, 0, 2), Window(9, 0, 2, 2), Window(0, 9, 2, 2)])
def test_a_window_must_lie_within(window: Window) -> None:
    with pytest.raises(ArgumentError, match="does not lie within a picture of 10 x 10"):
        window.check(10, 10)
