from __future__ import annotations

import numpy as np
import pytest
from pictures import photo
from PIL import Image

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.data.image import resize, resize_auto

SIZES = [(224, 224), (40, 200), (333, 31), (97, 61), (194, 122), (48, 30), (1, 1), (97, 5)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_antialias_is_pillows_bilinear_within_one_level(size: tuple[int, int], channels: int) -> None:
    image = photo(97, 61)[:, :, :channels]
    pillow = Image.fromarray(image if channels == 3 else image[:, :, 0]).resize(size, Image.Resampling.BILINEAR)
    result = resize(image, *size)
    assert result.shape == (size[1], size[0], channels)
    assert result.dtype == np.uint8
    assert np.abs(result.astype(int) - np.asarray(pillow).reshape(result.shape)).max() <= 1


def linear_at(line: np.ndarray, new: int) -> np.ndarray:
    """INTER_LINEAR of one line: pixel centres at halves, edges repeated."""
    return np.interp((np.arange(new) + 0.5) * len(line) / new - 0.5, np.arange(len(line)), line)


def area_of(line: np.ndarray, new: int) -> np.ndarray:
    """INTER_AREA of one line that shrinks: the difference of its integral at the edges of each new pixel."""
    integral = np.concatenate([[0.0], np.cumsum(line)])
    edges = np.interp(np.arange(new + 1) * len(line) / new, np.arange(len(line) + 1), integral)
    return np.diff(edges) * new / len(line)


def along_both(image: np.ndarray, width: int, height: int, line) -> np.ndarray:
    return np.apply_along_axis(line, 0, np.apply_along_axis(line, 1, image.astype(float), width), height)


@pytest.mark.parametrize("size", SIZES)
def test_linear(size: tuple[int, int]) -> None:
    image = photo(97, 61)
    assert np.abs(resize(image, *size, "linear") - along_both(image, *size, linear_at)).max() <= 1


@pytest.mark.parametrize("size", [(48, 30), (97, 5), (1, 1), (60, 61), (96, 60)])
def test_area_where_both_sides_shrink(size: tuple[int, int]) -> None:
    image = photo(97, 61)
    assert np.abs(resize(image, *size, "area") - along_both(image, *size, area_of)).max() <= 0.51


def test_area_where_a_side_grows_repeats_pixels_and_mixes_at_their_edges() -> None:
    line = np.array([10, 20, 90], np.uint8)
    image = np.repeat(line[None, :, None], 4, 0)
    # What OpenCV 5.0 gives.
    np.testing.assert_array_equal(resize(image, 6, 8, "area")[0, :, 0], [10, 10, 20, 20, 90, 90])
    np.testing.assert_array_equal(resize(image, 7, 8, "area")[0, :, 0], [10, 10, 17, 20, 43, 90, 90])


def test_nearest_takes_the_pixel_at_the_left_edge() -> None:
    image = np.arange(10, dtype=np.uint8).reshape(1, 10, 1)
    np.testing.assert_array_equal(resize(image, 4, 1, "nearest")[0, :, 0], [0, 2, 5, 7])
    np.testing.assert_array_equal(resize(image, 15, 1, "nearest")[0, :4, 0], [0, 0, 1, 2])


def test_the_rounding_where_a_pixel_ends_is_opencvs() -> None:
    """OpenCV multiplies by the inverse of new / old, which may lie a bit below old / new."""
    image = np.arange(49, dtype=np.uint8).reshape(1, 49, 1)
    for new in range(1, 300):
        expected = [min(int(i * (1 / (new / 49))), 48) for i in range(new)]
        np.testing.assert_array_equal(resize(image, new, 1, "nearest")[0, :, 0], expected)


def test_auto_is_linear_where_the_result_has_more_pixels() -> None:
    image = photo(97, 61)
    np.testing.assert_array_equal(resize_auto(image, 200, 100), resize(image, 200, 100, "linear"))
    np.testing.assert_array_equal(resize_auto(image, 200, 29), resize(image, 200, 29, "area"))
    np.testing.assert_array_equal(resize_auto(image, 50, 40), resize(image, 50, 40, "area"))


@pytest.mark.parametrize("method", ["antialias", "linear", "area", "nearest", "auto"])
def test_the_same_size_is_the_same_picture_and_one_colour_stays(method: str) -> None:
    image = photo(33, 21)
    np.testing.assert_array_equal(resize(image, 33, 21, method), image)
    plain = np.full((21, 33, 3), 201, np.uint8)
    np.testing.assert_array_equal(resize(plain, 50, 10, method), np.full((10, 50, 3), 201, np.uint8))


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match="'lanczos'"):
        resize(photo(9, 9), 3, 3, "lanczos")
    with pytest.raises(ArgumentError, match="0 x 3"):
        resize(photo(9, 9), 0, 3)
