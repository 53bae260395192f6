"""Transforms: of PIL pictures PIL's own results, of tensors the same within what floats allow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from flowvision import transforms as T
from flowvision.transforms import InterpolationMode
from flowvision.transforms import functional as F
from flowvision.transforms.geometry import inverse_affine


@pytest.fixture(scope="module")
def picture():
    """Smooth colours with an edge."""
    y, x = np.mgrid[0:40, 0:60]
    pixels = np.stack([x * 4, y * 6, (x + y) * 2], -1).astype(np.uint8)
    pixels[10:20, 20:30] = (250, 10, 90)
    return Image.fromarray(pixels)


def pixels(img):
    return np.asarray(img)


def as_tensor(img):
    return torch.from_numpy(np.array(img)).reshape(img.height, img.width, -1).permute(2, 0, 1).contiguous()


def as_pixels(tensor):
    return tensor.permute(1, 2, 0).squeeze(-1).numpy()


# ------------------------------------------------------------------------------------------------------------ tensors
# and back


def test_a_picture_becomes_floats_from_0_to_1_and_an_array_keeps_its_numbers(picture):
    expected = np.asarray(picture, np.float32).transpose(2, 0, 1) / 255
    made = T.ToTensor()(picture)
    assert made.dtype == torch.float32 and made.is_contiguous() and np.array_equal(made.numpy(), expected)
    array = np.full((2, 3, 1), 255, np.uint8)
    assert torch.equal(T.ToTensor()(array), torch.full((1, 2, 3), 255.0))
    assert torch.equal(F.to_tensor(np.eye(2, dtype=np.float64)), torch.eye(2)[None])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "CMYK", "HSV"])
def test_every_mode_of_bytes(mode, picture):
    img = picture.convert("RGB").convert(mode) if mode != "LA" else picture.convert("L").convert("LA")
    array = np.asarray(img, np.float32)
    array = array if mode == "1" else array / 255
    expected = array.reshape(img.height, img.width, -1).transpose(2, 0, 1)
    assert np.array_equal(F.to_tensor(img).numpy(), expected)


@pytest.mark.parametrize(("mode", "dtype"), [("I", torch.int32), ("F", torch.float32), ("I;16", torch.int16)])
def test_wide_modes_keep_their_numbers(mode, dtype):
    img = Image.fromarray(
        np.arange(6, dtype={"I": np.int32, "F": np.float32, "I;16": np.uint16}[mode]).reshape(2, 3) * 100
    )
    assert img.mode == mode
    assert torch.equal(F.to_tensor(img), (torch.arange(6).reshape(1, 2, 3) * 100).to(dtype))


def test_tensors_become_pictures_again(picture):
    assert np.array_equal(pixels(T.ToPILImage()(T.PILToTensor()(picture))), pixels(picture))
    assert np.array_equal(pixels(F.to_pil_image(F.to_tensor(picture) + 1e-4)), pixels(picture))
    assert (
        F.to_pil_image(torch.zeros(1, 4, 5)).mode == "L"
        and F.to_pil_image(np.zeros((4, 5, 4), np.uint8)).mode == "RGBA"
    )
    assert F.to_pil_image(torch.zeros(3, 4, 5, dtype=torch.uint8), "HSV").mode == "HSV"
    assert F.to_pil_image(torch.ones(2, 3), "F").mode == "F"
    assert np.array_equal(T.ToNumpy()(picture), pixels(picture).transpose(2, 0, 1))


def test_normalize_by_its_formula(picture):
    x = F.to_tensor(picture)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (x.numpy() - np.float32(mean).reshape(3, 1, 1)) / np.float32(std).reshape(3, 1, 1)
    assert np.allclose(T.Normalize(mean, std)(x).numpy(), expected, atol=1e-7)
    before = x.data_ptr()
    assert T.Normalize(mean, std, inplace=True)(x).data_ptr() == before


def test_dtypes_have_ranges():
    bytes_ = torch.tensor([[[0, 128, 255]]], dtype=torch.uint8)
    assert torch.allclose(F.convert_image_dtype(bytes_), bytes_ / 255)
    assert torch.equal(T.ConvertImageDtype(torch.uint8)(bytes_ / 255), bytes_)
    assert F.convert_image_dtype(bytes_, torch.int16).tolist() == [[[0, 128 * 128, 255 * 128]]]
    assert F.convert_image_dtype(F.convert_image_dtype(bytes_, torch.int16), torch.uint8).tolist() == bytes_.tolist()


# ------------------------------------------------------------------------------------------------------------- sizes
# and parts


@pytest.mark.parametrize("mode", list(InterpolationMode))
@pytest.mark.parametrize(("size", "expected"), [(20, (30, 20)), ((17, 33), (33, 17)), ([50], (75, 50)), (40, (60, 40))])
def test_resizing_pictures_is_pil_s(picture, mode, size, expected):
    made = T.Resize(size, mode)(picture)
    assert made.size == expected
    assert np.array_equal(pixels(made), pixels(picture.resize(expected, getattr(Image.Resampling, mode.name))))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("size", [(17, 33), (20, 30), (70, 90)])
def test_resizing_tensors_gives_what_pil_gives(picture, mode, size):
    expected = pixels(F.resize(picture, size, mode)).astype(int)
    for made in (
        as_pixels(F.resize(as_tensor(picture), size, mode)).astype(int),
        as_pixels(F.resize(F.to_tensor(picture), size, mode)) * 255,
    ):
        assert (np.abs(made - expected) < 1.01).mean() > {"bilinear": 1 - 1e-9, "bicubic": 0.95, "nearest": 0.85}[
            mode
        ]  # PIL rounds and clips between rows and columns, and breaks ties its own way


@pytest.mark.parametrize("convert", [lambda img: img, as_tensor])
def test_crops(picture, convert):
    img, whole = convert(picture), pixels(picture)
    back = pixels if convert(picture) is picture else as_pixels
    assert np.array_equal(back(F.crop(img, 5, 7, 10, 12)), whole[5:15, 7:19])
    assert np.array_equal(back(F.crop(img, -2, 55, 6, 10)), np.pad(whole[0:4, 55:60], ((2, 0), (0, 5), (0, 0))))
    assert np.array_equal(back(T.CenterCrop(10)(img)), whole[15:25, 25:35])
    assert np.array_equal(back(T.CenterCrop((44, 63))(img)), np.pad(whole, ((2, 2), (1, 2), (0, 0)))[0:44, 0:63])
    five = T.FiveCrop((8, 9))(img)
    assert [back(part).tolist() for part in five] == [
        part.tolist() for part in (whole[:8, :9], whole[:8, -9:], whole[-8:, :9], whole[-8:, -9:], whole[16:24, 26:35])
    ]
    ten = T.TenCrop((8, 9), vertical_flip=True)(img)
    assert np.array_equal(back(ten[5]), whole[::-1][:8, :9])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize(
    ("padding", "widths"), [(3, (3, 3, 3, 3)), ([2, 5], (2, 5, 2, 5)), ((1, 2, 3, 4), (1, 2, 3, 4))]
)
def test_padding_is_numpy_s(picture, mode, padding, widths):
    left, top, right, bottom = widths
    expected = np.pad(pixels(picture), ((top, bottom), (left, right), (0, 0)), mode=mode)
    assert np.array_equal(pixels(F.pad(picture, padding, padding_mode=mode)), expected)
    assert np.array_equal(as_pixels(T.Pad(padding, padding_mode=mode)(as_tensor(picture))), expected)


def test_padding_has_a_colour(picture):
    expected = pixels(ImageOps.expand(picture, 2, (1, 2, 3)))
    assert np.array_equal(pixels(F.pad(picture, 2, fill=(1, 2, 3))), expected)
    assert np.array_equal(as_pixels(F.pad(as_tensor(picture), 2, fill=(1, 2, 3))), expected)


def test_flips(picture):
    for flip, axis in ((F.hflip, 1), (F.vflip, 0)):
        assert np.array_equal(pixels(flip(picture)), np.flip(pixels(picture), axis))
        assert np.array_equal(as_pixels(flip(as_tensor(picture))), np.flip(pixels(picture), axis))


# ---------------------------------------------------------------------------------------------------------------------
# colours


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.7])
@pytest.mark.parametrize(
    ("change", "pil"),
    [(F.adjust_brightness, "Brightness"), (F.adjust_contrast, "Contrast"), (F.adjust_saturation, "Color")],
)
def test_colours_are_pil_s(picture, change, pil, factor):
    expected = pixels(getattr(ImageEnhance, pil)(picture).enhance(factor))
    assert np.array_equal(pixels(change(picture, factor)), expected)
    assert (
        np.abs(as_pixels(change(as_tensor(picture), factor)).astype(int) - expected).max() <= 2
    )  # PIL rounds grey on the way


@pytest.mark.parametrize("factor", [-0.5, -0.1, 0.0, 0.25, 0.5])
def test_hues_move_along_the_circle(picture, factor):
    import colorsys

    img = picture.crop((20, 10, 24, 12))
    red, green, blue = (value / 255 for value in img.getpixel((0, 0)))
    hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
    expected = np.array(colorsys.hsv_to_rgb((hue + factor) % 1, saturation, value)) * 255
    assert np.abs(np.array(F.adjust_hue(img, factor).getpixel((0, 0))) - expected).max() <= 16  # PIL's hues are bytes
    assert np.abs(as_pixels(F.adjust_hue(as_tensor(img), factor))[0, 0] - expected).max() <= 1
    assert F.adjust_hue(img.convert("L"), factor).mode == "L"


def test_grey(picture):
    assert np.array_equal(pixels(T.Grayscale()(picture)), pixels(picture.convert("L")))
    assert T.Grayscale(3)(picture).mode == "RGB" and T.Grayscale(3)(as_tensor(picture)).shape == (3, 40, 60)
    assert np.abs(as_pixels(T.Grayscale()(as_tensor(picture))).astype(int) - pixels(picture.convert("L"))).max() <= 1


def test_blur_by_hand():
    spot = torch.zeros(1, 5, 5)
    spot[0, 2, 2] = 1.0
    bell = [math.exp(-0.5), 1.0, math.exp(-0.5)]
    weights = np.outer(bell, bell) / np.outer(bell, bell).sum()
    assert np.allclose(F.gaussian_blur(spot, 3, 1.0)[0, 1:4, 1:4].numpy(), weights, atol=1e-6)
    img = Image.fromarray((spot[0].numpy() * 255).astype(np.uint8))
    assert np.abs(pixels(F.gaussian_blur(img, 3, 1.0))[1:4, 1:4] - weights * 255).max() <= 0.51


# ------------------------------------------------------------------------------------------------------------- turned
# and moved


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize("angle", [0, 90, 180, -37])
def test_turning_is_pil_s(picture, angle, expand):
    expected = picture.rotate(angle, Image.Resampling.NEAREST, expand)
    assert np.array_equal(pixels(F.rotate(picture, angle, expand=expand)), pixels(expected))
    made = F.rotate(as_tensor(picture), angle, expand=expand)
    assert abs(made.shape[-1] - expected.width) <= 1 and abs(made.shape[-2] - expected.height) <= 1
    if made.shape[-2:] == (expected.height, expected.width):
        assert (as_pixels(made) == pixels(expected)).all(-1).mean() > 0.95


def test_the_matrix_leads_back():
    arguments = ((3.0, 4.0), 30.0, (5.0, -6.0), 1.5, (10.0, 20.0))
    (cx, cy), angle, (tx, ty), scale, (sx, sy) = arguments
    turn, sx, sy = math.radians(angle), math.radians(sx), math.radians(sy)
    rotation = np.array([[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0], [0, 0, 1]])
    shear_y, shear_x = (
        np.array([[1, 0, 0], [-math.tan(sy), 1, 0], [0, 0, 1]]),
        np.array([[1, -math.tan(sx), 0], [0, 1, 0], [0, 0, 1]]),
    )
    center = np.array([[1, 0, cx], [0, 1, cy], [0, 0, 1]])
    move = np.array([[1, 0, tx], [0, 1, ty], [0, 0, 1]])
    forward = move @ center @ rotation @ shear_y @ shear_x @ np.diag([scale, scale, 1]) @ np.linalg.inv(center)
    assert np.allclose(np.array(inverse_affine(*arguments)).reshape(2, 3), np.linalg.inv(forward)[:2])


def test_moving_by_whole_pixels(picture):
    expected = np.zeros_like(pixels(picture))
    expected[4:, 3:] = pixels(picture)[:-4, :-3]
    assert np.array_equal(pixels(F.affine(picture, 0, (3, 4), 1.0, 0.0)), expected)
    assert np.array_equal(as_pixels(F.affine(as_tensor(picture), 0, (3, 4), 1.0, 0.0)), expected)
    filled = F.affine(as_tensor(picture), 0, (3, 4), 1.0, 0.0, fill=[7, 8, 9])
    assert filled[:, 0, 0].tolist() == [7, 8, 9] and F.affine(picture, 0, (3, 4), 1.0, 0.0, fill=(7, 8, 9)).getpixel(
        (0, 0)
    ) == (7, 8, 9)


# ------------------------------------------------------------------------------------------------------------------ at
# random

RANDOM = [
    T.RandomCrop(16, padding=4),
    T.RandomCrop((50, 70), pad_if_needed=True, padding_mode="reflect"),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomResizedCrop(24),
    T.RandomSizedCrop((8, 12), scale=(0.5, 0.9)),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.RandomRotation(30),
    T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), (5, 10)),
    T.RandomGrayscale(0.5),
    T.GaussianBlur(3),
    T.RandomApply([T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0)]),
    T.RandomOrder([T.RandomHorizontalFlip(), T.ColorJitter(0.5)]),
    T.RandomChoice([T.RandomHorizontalFlip(1.0), T.RandomVerticalFlip(1.0)]),
    T.Solarization(0.5),
]


@pytest.mark.parametrize("transform", RANDOM, ids=lambda transform: type(transform).__name__)
def test_a_seed_makes_a_transform_repeat_and_another_differ(picture, transform):
    def drawn(seed):
        torch.manual_seed(seed)
        return [pixels(transform(picture)).tolist() for _ in range(8)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert repr(transform)


def test_the_part_of_a_random_resized_crop_lies_within_its_bounds():
    img = Image.new("L", (60, 40))
    torch.manual_seed(0)
    for _ in range(200):
        top, left, height, width = T.RandomResizedCrop.get_params(img, (0.2, 0.5), (0.5, 2.0))
        assert 0 <= top <= 40 - height and 0 <= left <= 60 - width
        assert 0.18 <= height * width / 2400 <= 0.53 and 0.45 <= width / height <= 2.2
    assert T.RandomResizedCrop.get_params(Image.new("L", (100, 10)), (1.0, 1.0), (0.75, 4 / 3)) == (
        0,
        43,
        10,
        13,
    )  # none fits: the middle


def test_probabilities():
    torch.manual_seed(0)
    img = Image.fromarray(np.array([[1, 2]], np.uint8))
    flipped = sum(T.RandomHorizontalFlip(0.25)(img).getpixel((0, 0)) == 2 for _ in range(2000))
    assert 420 < flipped < 580
    assert T.RandomHorizontalFlip(0.0)(img) is img and T.RandomVerticalFlip(1.0)(img) is not img


def test_compose_runs_one_after_the_other(picture):
    row = T.Compose([T.Resize(20), T.CenterCrop(16), T.ToTensor(), T.Lambda(lambda x: x * 2)])
    assert torch.equal(row(picture), F.to_tensor(F.center_crop(F.resize(picture, 20), 16)) * 2)
    assert repr(row).startswith("Compose(\n    Resize(size=20, interpolation=bilinear)")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: T.ToTensor()([1]), TypeError, "to_tensor takes a PIL picture or a numpy array, got list"),
        (lambda p: F.to_tensor(np.zeros(3)), ValueError, "array of 2 or 3 dims, got 1"),
        (lambda p: F.pil_to_tensor(np.zeros(3)), TypeError, "takes a PIL picture, got ndarray"),
        (lambda p: F.to_pil_image(p), TypeError, "takes a tensor or an array, got Image"),
        (lambda p: F.to_pil_image(torch.zeros(5, 2, 2)), ValueError, "a picture has 1 to 4 channels, got 5"),
        (
            lambda p: F.to_pil_image(torch.zeros(2, 2, dtype=torch.uint8), "RGB"),
            ValueError,
            "is a picture of mode 'L', not 'RGB'",
        ),
        (
            lambda p: T.Normalize((0,), (1,))(p),
            TypeError,
            "normalize takes a tensor, got Image; put ToTensor before it",
        ),
        (
            lambda p: T.Normalize((0, 0), (1, 1))(torch.zeros(3, 2, 2)),
            ValueError,
            "for each of the 3 channels, got 2 and 2",
        ),
        (lambda p: T.Normalize((0,), (0,))(torch.zeros(3, 2, 2)), ValueError, "std has no zero"),
        (lambda p: T.Resize("big"), ValueError, "size is an int, the shorter side, or .height, width., got 'big'"),
        (
            lambda p: T.Resize(3, "bilinea"),
            ValueError,
            "interpolation is one of .* got 'bilinea'. Did you mean 'bilinear'",
        ),
        (
            lambda p: F.resize(torch.zeros(1, 4, 4), 2, "lanczos"),
            ValueError,
            "a tensor is resized by one of .* other modes are for PIL pictures",
        ),
        (
            lambda p: T.RandomCrop(100)(p),
            ValueError,
            "a crop of 100 x 100 is larger than the picture of 40 x 60; give padding, or pad_if_needed=True",
        ),
        (lambda p: T.FiveCrop(100)(p), ValueError, "the crops are 100 x 100, larger than the picture"),
        (lambda p: T.Pad((1, 2, 3))(p), ValueError, "padding is an int, .*got .1, 2, 3."),
        (lambda p: F.pad(p, 1, padding_mode="wrap"), ValueError, "padding_mode is one of .* got 'wrap'"),
        (lambda p: F.pad(p, 1, fill=(1, 2)), ValueError, "one for each of the 3 channels of the picture"),
        (lambda p: T.ColorJitter(hue=0.7), ValueError, "hue is between -0.5 and 0.5"),
        (lambda p: T.ColorJitter(brightness=-1), ValueError, "brightness is at least 0"),
        (lambda p: F.adjust_hue(p, 0.6), ValueError, "hue_factor is from -0.5 to 0.5, got 0.6"),
        (lambda p: F.gaussian_blur(p, 4), ValueError, "kernel_size is an odd int"),
        (
            lambda p: T.RandomResizedCrop(3, scale=(0.9, 0.1)),
            ValueError,
            "scale is two numbers above 0, the lower first",
        ),
        (lambda p: T.RandomAffine(10, translate=(2, 0)), ValueError, "translate is two shares from 0 to 1"),
        (lambda p: F.hflip("x"), TypeError, "a PIL picture or a tensor, got str"),
        (lambda p: T.Lambda(3), TypeError, "Lambda takes a function, got int"),
        (lambda p: T.CenterCrop(2.5), ValueError, "size is an int or .height, width., got 2.5"),
    ],
)
def test_mistakes_are_told(picture, call, error, message):
    with pytest.raises(error, match=message):
        call(picture)
