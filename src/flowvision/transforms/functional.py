"""Transforms as functions: of PIL pictures by PIL, of tensors (..., channels, height, width) by torch, with the same
meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from flowvision.transforms import functional_pil as of_pictures
from flowvision.transforms import functional_tensor as of_tensors
from flowvision.transforms.functional_tensor import convert_image_dtype
from flowvision.transforms.geometry import inverse_affine, pair_of
from flowvision.transforms.interpolation import (
    PIL_MODES,
    InterpolationMode,
    interpolation_mode,
    str_to_interp_mode,
    str_to_pil_interp,
)
from oneflow.engine.core.errors import ArgumentError, DTypeError

__all__ = [
    "InterpolationMode",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "affine",
    "center_crop",
    "convert_image_dtype",
    "crop",
    "five_crop",
    "gaussian_blur",
    "get_dimensions",
    "hflip",
    "normalize",
    "pad",
    "pil_to_tensor",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "scale",
    "str_to_interp_mode",
    "str_to_pil_interp",
    "ten_crop",
    "to_pil_image",
    "to_tensor",
    "vflip",
]

_NEAREST = InterpolationMode.NEAREST
_BILINEAR = InterpolationMode.BILINEAR
_WIDE = {"I": np.int32, "I;16": np.int16, "F": np.float32}


def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width]"""
    return _of(img).get_dimensions(img)


def to_tensor(pic: Any) -> Tensor:
    """A PIL picture as float32 from 0 to 1 of shape (channels, height, width); one of mode I, I;16 or F with its own
    numbers. An array (height, width) or (height, width, channels) becomes float32 with the numbers it has: 255 stays
    255."""
    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ArgumentError(f"to_tensor takes an array of 2 or 3 dims, got {pic.ndim}")
        array = torch.from_numpy(np.ascontiguousarray(pic if pic.ndim == 3 else pic[:, :, None]))
        return _channels_first(array, torch.float32)
    if not isinstance(pic, Image.Image):
        raise DTypeError(f"to_tensor takes a PIL picture or a numpy array, got {type(pic).__name__}")
    if pic.mode in _WIDE:
        return torch.from_numpy(np.array(pic, _WIDE[pic.mode])).unsqueeze(0)
    return _channels_first(_pixels(pic), torch.float32).div_(255)


def pil_to_tensor(pic: Image.Image) -> Tensor:
    """A PIL picture as it is, of shape (channels, height, width)."""
    if not isinstance(pic, Image.Image):
        raise DTypeError(f"pil_to_tensor takes a PIL picture, got {type(pic).__name__}")
    return _channels_first(torch.from_numpy(np.array(pic)).reshape(pic.height, pic.width, -1), None)


def to_pil_image(pic: Any, mode: str | None = None) -> Image.Image:
    """A tensor (channels, height, width) or an array (height, width, channels), uint8 or float from 0 to 1, as a
    picture."""
    if not isinstance(pic, (Tensor, np.ndarray)):
        raise DTypeError(f"to_pil_image takes a tensor or an array, got {type(pic).__name__}")
    if pic.ndim not in (2, 3):
        raise ArgumentError(f"to_pil_image takes 2 or 3 dims, got {pic.ndim}")
    if isinstance(pic, Tensor):
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        array = pic.cpu().numpy()
        array = array if array.ndim == 2 else array.transpose(1, 2, 0)
    else:
        array = pic
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim == 3 and array.shape[2] not in (2, 3, 4):
        raise ArgumentError(f"a picture has 1 to 4 channels, got {array.shape[2]}")
    found = _mode_of(array)
    if (
        mode is not None
        and mode != found
        and (array.ndim == 2 or array.dtype != np.uint8 or len(mode) < array.shape[2])
    ):
        raise ArgumentError(f"{array.dtype} of shape {array.shape} is a picture of mode {found!r}, not {mode!r}")
    if mode is None or mode == found:
        return Image.fromarray(np.ascontiguousarray(array))
    return Image.frombytes(mode, (array.shape[1], array.shape[0]), np.ascontiguousarray(array).tobytes())


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(x - mean) / std, with a mean and a deviation for each channel."""
    if not isinstance(tensor, Tensor):
        raise DTypeError(f"normalize takes a tensor, got {type(tensor).__name__}; put ToTensor before it")
    if not tensor.is_floating_point() or tensor.ndim < 3:
        raise ArgumentError(
            f"normalize takes floats of shape (..., channels, height, width), got {tensor.dtype} of shape "
            f"{tuple(tensor.shape)}"
        )
    means = torch.as_tensor(mean, dtype=tensor.dtype, device=tensor.device)
    deviations = torch.as_tensor(std, dtype=tensor.dtype, device=tensor.device)
    if (deviations == 0).any():
        raise ArgumentError(f"std has no zero, got {std!r}")
    if len({means.numel(), tensor.shape[-3]} - {1}) > 1 or len({deviations.numel(), tensor.shape[-3]} - {1}) > 1:
        raise ArgumentError(
            f"mean and std have a number for each of the {tensor.shape[-3]} channels, got {means.numel()} and "
            f"{deviations.numel()}"
        )
    means, deviations = means.reshape(-1, 1, 1), deviations.reshape(-1, 1, 1)
    return tensor.sub_(means).div_(deviations) if inplace else tensor.sub(means).div_(deviations)


def resize(img: Any, size: Any, interpolation: Any = _BILINEAR) -> Any:
    """Another size: (height, width), or one number for the shorter side."""
    mode = interpolation_mode(interpolation)
    return (
        of_pictures.resize(img, size, PIL_MODES[mode])
        if _of(img) is of_pictures
        else of_tensors.resize(img, size, mode.value)
    )


def scale(*args: Any, **kwargs: Any) -> Any:
    """The old name of ``resize``."""
    return resize(*args, **kwargs)


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """More pixels at the sides; ``padding`` is one number, (left and right, top and bottom) or (left, top, right,
    bottom)."""
    return _of(img).pad(img, padding, fill, padding_mode)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of the picture; what lies outside of it is 0."""
    return _of(img).crop(img, top, left, height, width)


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of the picture; where it is smaller than that, with zeros around it."""
    height, width = pair_of("output_size", output_size)
    _, h, w = get_dimensions(img)
    if w < width or h < height:
        missing = [
            max((width - w) // 2, 0),
            max((height - h) // 2, 0),
            max((width - w + 1) // 2, 0),
            max((height - h + 1) // 2, 0),
        ]
        img = pad(img, missing)
        _, h, w = get_dimensions(img)
    return crop(img, int(round((h - height) / 2.0)), int(round((w - width) / 2.0)), height, width)


def resized_crop(
    img: Any, top: int, left: int, height: int, width: int, size: Any, interpolation: Any = _BILINEAR
) -> Any:
    """A part of the picture, in another size."""
    return resize(crop(img, top, left, height, width), size, interpolation)


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    return _of(img).hflip(img)


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    return _of(img).vflip(img)


def five_crop(img: Any, size: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The four corners, top left, top right, bottom left, bottom right, and the middle."""
    height, width = pair_of("size", size)
    _, h, w = get_dimensions(img)
    if width > w or height > h:
        raise ArgumentError(f"the crops are {height} x {width}, larger than the picture of {h} x {w}")
    corners = [crop(img, top, left, height, width) for top in (0, h - height) for left in (0, w - width)]
    return corners[0], corners[1], corners[2], corners[3], center_crop(img, (height, width))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """``five_crop`` of the picture, and of the picture flipped."""
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0 is black, 1 the picture itself."""
    return _of(img).adjust_brightness(img, brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0 is grey, 1 the picture itself."""
    return _of(img).adjust_contrast(img, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0 is black and white, 1 the picture itself."""
    return _of(img).adjust_saturation(img, saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Hues moved along the circle, by half of it at most: ``hue_factor`` is from -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ArgumentError(f"hue_factor is from -0.5 to 0.5, got {hue_factor!r}")
    return _of(img).adjust_hue(img, hue_factor)


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = _NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = None,
    resample: Any = None,
) -> Any:
    """Turned counter-clockwise by ``angle`` degrees about ``center`` (x, y), by default the middle. ``resample`` is the
    old name of ``interpolation``."""
    mode = interpolation_mode(interpolation if resample is None else resample)
    if _of(img) is of_pictures:
        return of_pictures.rotate(img, angle, PIL_MODES[mode], expand, center, fill)
    _, height, width = get_dimensions(img)
    middle = (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
    return of_tensors.rotate(img, inverse_affine(middle, -angle, (0.0, 0.0), 1.0, (0.0, 0.0)), mode.value, expand, fill)


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    interpolation: Any = _NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    """Sheared by ``shear`` degrees (x, or x and y), scaled, turned clockwise about ``center``, by default the middle,
    and moved by ``translate`` pixels."""
    if scale <= 0:
        raise ArgumentError(f"scale is above 0, got {scale!r}")
    mode = interpolation_mode(interpolation)
    shears = (
        (float(shear), 0.0)
        if isinstance(shear, (int, float))
        else (float(shear[0]), float(shear[1]) if len(shear) > 1 else 0.0)
    )
    _, height, width = get_dimensions(img)
    if _of(img) is of_pictures:
        middle = (width * 0.5, height * 0.5) if center is None else center
        return of_pictures.affine(img, inverse_affine(middle, angle, translate, scale, shears), PIL_MODES[mode], fill)
    middle = (0.0, 0.0) if center is None else (center[0] - width * 0.5, center[1] - height * 0.5)
    return of_tensors.affine(img, inverse_affine(middle, angle, translate, scale, shears), mode.value, fill)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Without colours, with one channel or three equal ones."""
    return (
        of_pictures.to_grayscale(img, num_output_channels)
        if _of(img) is of_pictures
        else of_tensors.rgb_to_grayscale(img, num_output_channels)
    )


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Blurred by a bell of ``kernel_size``, odd: a number or (width, height); ``sigma`` is by default 0.15 * size +
    0.35."""
    sizes = [kernel_size, kernel_size] if isinstance(kernel_size, int) else list(kernel_size)
    if len(sizes) != 2 or any(not isinstance(size, int) or size < 1 or size % 2 == 0 for size in sizes):
        raise ArgumentError(f"kernel_size is an odd int or two of them, got {kernel_size!r}")
    given = (
        [0.15 * size + 0.35 for size in sizes]
        if sigma is None
        else [float(sigma)] * 2
        if isinstance(sigma, (int, float))
        else list(map(float, sigma))
    )
    given = given * 2 if len(given) == 1 else given
    if len(given) != 2 or min(given) <= 0:
        raise ArgumentError(f"sigma is a number above 0 or two of them, got {sigma!r}")
    if _of(img) is of_tensors:
        return of_tensors.gaussian_blur(img, sizes, given)
    return to_pil_image(of_tensors.gaussian_blur(pil_to_tensor(img), sizes, given), mode=img.mode)


def _of(img: Any) -> Any:
    """The functions for what ``img`` is."""
    if isinstance(img, Image.Image):
        return of_pictures
    if isinstance(img, Tensor):
        return of_tensors
    raise DTypeError(f"a picture to transform is a PIL picture or a tensor, got {type(img).__name__}")


def _pixels(pic: Image.Image) -> Tensor:
    """(height, width, channels) as uint8; black and white are 0 and 255."""
    pic = pic.convert("L") if pic.mode == "1" else pic
    return torch.frombuffer(bytearray(pic.tobytes()), dtype=torch.uint8).reshape(pic.height, pic.width, -1)


def _channels_first(pixels: Tensor, dtype: torch.dtype | None) -> Tensor:
    moved = pixels.permute(2, 0, 1)
    return moved.contiguous() if dtype is None else moved.to(dtype, memory_format=torch.contiguous_format)


def _mode_of(array: np.ndarray) -> str:
    if array.ndim == 3:
        return {2: "LA", 3: "RGB", 4: "RGBA"}[array.shape[2]]
    kinds = {"uint8": "L", "int16": "I;16", "uint16": "I;16", "int32": "I", "float32": "F", "bool": "1"}
    if array.dtype.name not in kinds:
        raise DTypeError(f"a picture is uint8, int16, int32 or float32, got {array.dtype}")
    return kinds[array.dtype.name]
