"""FastNN's preprocessing: TensorFlow's numbers where they are known, formulas elsewhere, and the laws of the random
ones."""

from __future__ import annotations

import colorsys
import random
from collections import Counter

import numpy as np
import pytest
import torch

from fastnn.errors import FlagError
from fastnn.preprocessing import inception_preprocessing, pixels, preprocessing_factory
from fastnn.preprocessing.preprocessing_factory import get_preprocessing, preprocessing_fn_map
from oneflow.engine.core.errors import ArgumentError


def picture(height, width):
    i, j, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((7 * i + 13 * j + 29 * c + ((i * j) % 31)) % 256).astype(np.uint8)


# name, size of the picture, size of the result; mean, deviation, least and largest element that TensorFlow gave in
# evaluation.
TENSORFLOW = [
    ("vgg", 375, 500, 224, (12.694723, 67.882482, -123.084511, 150.689667)),
    ("vgg", 500, 333, 224, (12.632044, 67.986453, -123.289841, 150.297516)),
    ("vgg", 32, 32, 224, (14.307808, 69.309947, -123.680000, 151.059998)),
    ("inception", 375, 500, 299, (-0.000440, 0.529265, -0.999424, 0.999886)),
    ("inception", 375, 500, 224, (-0.000397, 0.528926, -1.0, 0.997525)),
    ("inception", 101, 67, 299, (0.001855, 0.530454, -0.999003, 0.998153)),
    ("lenet", 28, 28, 28, (0.021484, 0.576502, -1.0, 0.992188)),
    ("lenet", 20, 40, 28, (-0.265442, 0.691840, -1.0, 0.992188)),
    ("cifarnet", 32, 32, 32, (0.0, 1.0, -1.709819, 1.695404)),
    ("cifarnet", 40, 24, 32, (0.0, 1.0, -1.130885, 1.868990)),
]


@pytest.mark.parametrize(("name", "height", "width", "size", "expected"), TENSORFLOW)
def test_evaluation_is_tensorflows(name, height, width, size, expected):
    made = get_preprocessing(name)(picture(height, width), size, size)
    assert made.shape == (size, size, 3) and made.dtype == np.float32
    found = made.mean(dtype=np.float64), made.std(dtype=np.float64), made.min(), made.max()
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_bilinear_resizing_is_tensorflows():
    image = np.array([[0, 13, 26, 39], [7, 21, 35, 49], [14, 29, 44, 59]], np.float32)[..., None]
    expected = [0, 7.428572, 14.857143, 22.285717, 29.714287, 37.14286, 39]
    np.testing.assert_allclose(pixels.resize_bilinear(image, 5, 7)[0, :, 0], expected, rtol=1e-6)


def test_a_window_of_a_resized_picture_is_that_part_of_it():
    image = picture(37, 53)
    whole = pixels.resize_bilinear(image, 80, 71)
    np.testing.assert_array_equal(pixels.resize_bilinear(image, 80, 71, (11, 5, 30, 40)), whole[11:41, 5:45])


def test_other_resizings_by_hand():
    row = np.array([[0.0, 4.0, 8.0, 12.0]], np.float32)[..., None]
    np.testing.assert_array_equal(pixels.resize_nearest(row, 1, 8)[0, :, 0], [0, 0, 4, 4, 8, 8, 12, 12])
    np.testing.assert_allclose(pixels.resize_area(row, 1, 2)[0, :, 0], [2, 10])
    np.testing.assert_allclose(
        pixels.resize_area(row, 1, 3)[0, :, 0],
        [(0 * 1 + 4 / 3) / (4 / 3), (4 * 2 / 3 + 8 * 2 / 3) / (4 / 3), (8 / 3 + 12) / (4 / 3)],
        rtol=1e-6,
    )
    np.testing.assert_allclose(pixels.resize_bicubic(row, 1, 4)[0, :, 0], [0, 4, 8, 12], atol=1e-6)
    # Half way between 4 and 8 by Keys' cubic of -0.75: weights -0.09375, 0.59375, 0.59375, -0.09375.
    np.testing.assert_allclose(
        pixels.resize_bicubic(row, 1, 8)[0, 3, 0], -0.09375 * 0 + 0.59375 * (4 + 8) - 0.09375 * 12, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("side", "start", "size"), [(375, 23, 329), (500, 31, 438), (299, 18, 263), (101, 6, 89), (67, 4, 59), (10, 0, 10)]
)
def test_the_central_fraction(side, start, size):
    assert pixels.central_fraction_window(side, side, 0.875) == (start, start, size, size)


@pytest.mark.parametrize(
    ("height", "width", "smallest", "expected"),
    [
        (375, 500, 256, (256, 341)),
        (500, 333, 256, (384, 256)),
        (500, 333, 512, (769, 512)),
        (100, 201, 257, (257, 517)),
        (480, 640, 399, (399, 532)),
    ],
)
def test_sizes_that_preserve_the_aspect(height, width, smallest, expected):
    assert pixels.aspect_preserving_size(height, width, smallest) == expected


def test_crop_or_pad_is_in_the_middle():
    image = picture(5, 4)
    made = pixels.crop_or_pad(image, 2, 7)
    np.testing.assert_array_equal(made[:, 1:5], image[1:3])
    assert not made[:, 0].any() and not made[:, 5:].any()


def test_saturation_and_hue_go_by_hsv():
    image = np.random.default_rng(0).random((6, 5, 3)).astype(np.float32)
    image[0, 0] = 0.4  # grey
    saturated, turned = pixels.adjust_saturation(image, 1.4), pixels.adjust_hue(image, 0.3)
    for y in range(6):
        for x in range(5):
            h, s, v = colorsys.rgb_to_hsv(*image[y, x].tolist())
            np.testing.assert_allclose(saturated[y, x], colorsys.hsv_to_rgb(h, min(1.0, s * 1.4), v), atol=2e-6)
            np.testing.assert_allclose(turned[y, x], colorsys.hsv_to_rgb((h + 0.3) % 1.0, s, v), atol=2e-6)


def test_saturation_of_what_brightness_has_made_negative():
    """S is 1 at most, and a pixel whose largest channel is not above 0 becomes grey, as TensorFlow's kernel does."""
    image = np.array([[[0.2, -0.1, 0.1], [-0.3, -0.1, -0.2]]], np.float32)
    made = pixels.adjust_saturation(image, 1.0)
    np.testing.assert_allclose(made[0, 0], [0.2, 0.0, 0.2 - 0.1 * (0.2 / 0.3)], atol=1e-6)
    np.testing.assert_allclose(made[0, 1], [-0.1, -0.1, -0.1], atol=1e-6)


def test_contrast_keeps_each_channels_mean():
    image = picture(6, 7).astype(np.float32)
    mean = image.mean((0, 1))
    np.testing.assert_allclose(pixels.adjust_contrast(image, 1.7), (image - mean) * 1.7 + mean, rtol=1e-5, atol=1e-3)


def test_a_picture_of_one_colour_is_standardized_to_zero():
    assert not pixels.standardized(np.full((4, 4, 3), 7.0, np.float32)).any()


def test_distorted_windows_obey_their_laws():
    draws, height, width = random.Random(1).random, 60, 90
    for _ in range(3000):
        top, left, rows, columns = pixels.distorted_window(draws, height, width)
        assert 0 <= top and top + rows <= height and 0 <= left and left + columns <= width
        if (rows, columns) != (height, width):
            assert top + rows < height or rows == height
            assert left + columns < width or columns == width
            assert 0.1 * height * width - 1 <= rows * columns <= height * width
            assert 0.75 - 1 / rows <= columns / rows <= 1.33 + 1 / rows


def test_heights_of_distorted_windows_are_uniform():
    """Of a square picture, at an aspect of 1: heights from rint(sqrt(0.1 n)) on are equally likely, as areas below a
    tenth are refused."""
    draws = random.Random(2).random
    heights = Counter(pixels.distorted_window(draws, 20, 20, aspect_ratio_range=(1.0, 1.0))[2] for _ in range(14000))
    assert sorted(heights) == list(range(7, 21))
    assert max(heights.values()) / min(heights.values()) < 1.25


def test_distorted_windows_cover_a_box():
    draws = random.Random(3).random
    box = np.array([[0.0, 0.0, 0.2, 0.2]])
    for _ in range(300):
        top, left, rows, columns = pixels.distorted_window(draws, 50, 50, box, min_object_covered=0.5)
        assert max(0, min(10, top + rows) - top) * max(0, min(10, left + columns) - left) >= 50 or (rows, columns) == (
            50,
            50,
        )


def test_a_window_that_cannot_be_had_is_the_whole_picture():
    assert pixels.distorted_window(
        random.Random(0).random, 10, 10, area_range=(0.05, 0.06), min_object_covered=0.9
    ) == (0, 0, 10, 10)


@pytest.mark.parametrize("name", ["inception", "vgg", "cifarnet"])
def test_training_is_a_function_of_the_draws(name):
    made = [
        get_preprocessing(name, is_training=True)(picture(70, 90), 32, 32, draws=random.Random(seed).random)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])
    assert made[0].shape == (32, 32, 3) and made[0].dtype == np.float32


def test_ranges_of_training_pictures():
    random.seed(5)
    for _ in range(20):
        made = get_preprocessing("inception_v3", True)(picture(60, 80), 48, 48)
        assert made.min() >= -1.0 and made.max() <= 1.0
        made = get_preprocessing("cifarnet", True)(picture(32, 32), 32, 32)
        assert abs(made.mean()) < 1e-4 and abs(made.std() - 1) < 1e-3


def test_vgg_resizes_the_shorter_side_to_256_up_to_512():
    sides = Counter()
    for seed in range(3000):
        sides[pixels.whole(random.Random(seed).random, 256, 512)] += 1
    assert min(sides) == 256 and max(sides) == 512


@pytest.mark.parametrize("ordering", range(4))
def test_slow_colours_are_in_all_orders(ordering):
    made = inception_preprocessing.distort_color(
        picture(8, 9).astype(np.float32) / 255, ordering, False, random.Random(ordering).random
    )
    assert made.shape == (8, 9, 3) and 0 <= made.min() and made.max() <= 1


def test_slow_mode_uses_every_resize():
    for seed in range(12):
        made = inception_preprocessing.preprocess_image(
            picture(30, 40), 16, 16, True, fast_mode=False, draws=random.Random(seed).random
        )
        assert made.shape == (16, 16, 3) and -1 <= made.min() and made.max() <= 1


def test_tensors_give_tensors():
    made = get_preprocessing("vgg_16", True)(torch.from_numpy(picture(70, 90)), 32, 32)
    assert isinstance(made, torch.Tensor) and made.dtype is torch.float32 and made.is_contiguous()


def test_grayscale_and_no_crop_of_inception():
    made = get_preprocessing("inception_v1", use_grayscale=True)(picture(20, 20), 10, 10, crop_image=False)
    assert made.shape == (10, 10, 1)
    grey = pixels.resize_bilinear(picture(20, 20), 10, 10) / 255 @ np.array([0.2989, 0.587, 0.114], np.float32)
    np.testing.assert_allclose(made[..., 0], (grey - 0.5) * 2, atol=1e-5)


def test_every_slim_network_has_its_preprocessing():
    kinds = {name: module.__name__.rsplit(".", 1)[-1] for name, module in preprocessing_fn_map.items()}
    assert kinds["resnet_v2_200"] == kinds["vgg_a"] == "vgg_preprocessing"
    assert (
        kinds["mobilenet_v2_140"]
        == kinds["pnasnet_large"]
        == kinds["alexnet_v2"]
        == kinds["overfeat"]
        == "inception_preprocessing"
    )
    assert (
        kinds["nasnet_cifar"] == kinds["cifarnet"] == "cifarnet_preprocessing"
        and kinds["lenet"] == "lenet_preprocessing"
    )


def test_a_preprocessing_of_ones_own(monkeypatch):
    monkeypatch.setitem(
        preprocessing_fn_map,
        "mine",
        lambda image, height, width, is_training, **kw: (image, height, width, is_training, kw),
    )
    assert get_preprocessing("mine", True)(7, 1, 2, a=3) == (7, 1, 2, True, {"a": 3})
    assert not get_preprocessing("mine").takes_draws and get_preprocessing("vgg").takes_draws
    monkeypatch.setitem(preprocessing_fn_map, "mine", 5)
    with pytest.raises(FlagError, match="a module with preprocess_image"):
        get_preprocessing("mine")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_preprocessing("vgg_17"), "preprocessing 'vgg_17' was not recognized. Did you mean 'vgg_1"),
        (lambda: get_preprocessing("vgg", use_grayscale=True), "the preprocessing 'vgg' does not take use_grayscale="),
        (
            lambda: get_preprocessing("vgg")(np.zeros((5, 5), np.uint8), 3, 3),
            "a picture has the shape (height, width, channels) with 3 channels, got (5, 5)",
        ),
        (
            lambda: get_preprocessing("vgg")(picture(9, 9), 300, 300),
            "a crop of 300 x 300 cannot be taken from a picture of 256 x 256",
        ),
        (
            lambda: get_preprocessing("vgg", True)(picture(9, 9), 30, 30, resize_side_min=9, resize_side_max=8),
            "resize_side_min is at most resize_side_max",
        ),
        (
            lambda: get_preprocessing("cifarnet", True)(picture(9, 9), 30, 30),
            "a crop of 30 x 30 cannot be taken from a picture of 17 x 17",
        ),
        (
            lambda: pixels.distorted_window(random.random, 9, 9, np.array([[0.5, 0, 0.2, 1]])),
            "a box is ymin, xmin, ymax, xmax from 0 to 1",
        ),
        (
            lambda: inception_preprocessing.distort_color(picture(3, 3) / 255.0, 7),
            "color_ordering is from 0 to 3, got 7",
        ),
    ],
)
def test_wrong_calls(call, message):
    with pytest.raises((ArgumentError, ValueError)) as error:
        call()
    assert message in str(error.value)


def test_the_factory_is_importable_under_its_published_name():
    assert preprocessing_factory.get_preprocessing is get_preprocessing
