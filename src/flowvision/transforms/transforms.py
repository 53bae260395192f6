"""Transforms as objects, to be put into a row by ``Compose``. Random ones draw from torch's generator:
``oneflow.manual_seed`` makes them repeat."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn

from flowvision.transforms import functional as F
from flowvision.transforms.geometry import pair_of, resized
from flowvision.transforms.interpolation import InterpolationMode, interpolation_mode
from oneflow.engine.core.errors import ArgumentError, DTypeError

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "FiveCrop",
    "GaussianBlur",
    "Grayscale",
    "Lambda",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomAffine",
    "RandomApply",
    "RandomChoice",
    "RandomCrop",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomOrder",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSizedCrop",
    "RandomTransforms",
    "RandomVerticalFlip",
    "Resize",
    "Scale",
    "Solarization",
    "TenCrop",
    "ToNumpy",
    "ToPILImage",
    "ToTensor",
]

_BILINEAR, _NEAREST = InterpolationMode.BILINEAR, InterpolationMode.NEAREST


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *(f"    {transform}" for transform in self.transforms), ")"])


class ToTensor:
    """A PIL picture as float32 from 0 to 1 of shape (channels, height, width). The numbers of an array stay as they
    are: 255 is 255.0."""

    def __call__(self, pic: Any) -> torch.Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """A PIL picture as a tensor of its own numbers, (channels, height, width)."""

    def __call__(self, pic: Image.Image) -> torch.Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return "PILToTensor()"


class ToNumpy:
    """A PIL picture as an array (channels, height, width)."""

    def __call__(self, pil_img: Image.Image) -> np.ndarray:
        array = np.array(pil_img, dtype=np.uint8)
        return np.moveaxis(array if array.ndim == 3 else array[:, :, None], 2, 0)


class ToPILImage:
    """A tensor (channels, height, width), or an array (height, width, channels), as a PIL picture."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Image.Image:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"ToPILImage({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(nn.Module):
    """Another dtype with its range: floats from 0 to 1, ints from 0 to their highest."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(nn.Module):
    """(x - mean) / std, with a mean and a deviation for each channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def extra_repr(self) -> str:
        return f"mean={self.mean}, std={self.std}"


class Resize(nn.Module):
    """Another size: (height, width), or one number for the shorter side."""

    def __init__(self, size: Any, interpolation: Any = _BILINEAR) -> None:
        super().__init__()
        resized(size, 1, 1)  # a size that is none is an error of this line
        self.size, self.interpolation = size, interpolation_mode(interpolation)

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation)

    def extra_repr(self) -> str:
        return f"size={self.size}, interpolation={self.interpolation.value}"


class Scale(Resize):
    """The old name of ``Resize``."""


class CenterCrop(nn.Module):
    """The middle of a picture."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair_of("size", size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)

    def extra_repr(self) -> str:
        return f"size={self.size}"


class Pad(nn.Module):
    """More pixels at the sides."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode}"


class Lambda:
    """A function as a transform."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise DTypeError(f"Lambda takes a function, got {type(lambd).__name__}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)


class RandomTransforms:
    """The base of those that choose among several."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        if not isinstance(transforms, Sequence):
            raise DTypeError(f"transforms is a list of them, got {type(transforms).__name__}")
        self.transforms = transforms

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}(", *(f"    {transform}" for transform in self.transforms), ")"])


class RandomApply(nn.Module):
    """All of the transforms with probability ``p``, else none."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, img: Any) -> Any:
        if _chance(self.p):
            for transform in self.transforms:
                img = transform(img)
        return img


class RandomOrder(RandomTransforms):
    """All of the transforms, in any order."""

    def __call__(self, img: Any) -> Any:
        for number in torch.randperm(len(self.transforms)).tolist():
            img = self.transforms[number](img)
        return img


class RandomChoice(RandomTransforms):
    """One of the transforms."""

    def __call__(self, img: Any) -> Any:
        return self.transforms[int(torch.randint(len(self.transforms), ()))](img)


class RandomCrop(nn.Module):
    """A part of the picture, from anywhere; ``padding`` comes first, and with ``pad_if_needed`` what a picture lacks of
    the size."""

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0, padding_mode: str = "constant"
    ) -> None:
        super().__init__()
        self.size = pair_of("size", size)
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part, drawn at random."""
        _, h, w = F.get_dimensions(img)
        height, width = output_size
        if h < height or w < width:
            raise ArgumentError(
                f"a crop of {height} x {width} is larger than the picture of {h} x {w}; give padding, or "
                f"pad_if_needed=True"
            )
        return int(torch.randint(h - height + 1, ())), int(torch.randint(w - width + 1, ())), height, width

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, h, w = F.get_dimensions(img)
        height, width = self.size
        if self.pad_if_needed and (w < width or h < height):
            img = F.pad(img, [max(width - w, 0), max(height - h, 0)], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))

    def extra_repr(self) -> str:
        return f"size={self.size}, padding={self.padding}"


class RandomHorizontalFlip(nn.Module):
    """Left and right exchanged with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return F.hflip(img) if _chance(self.p) else img

    def extra_repr(self) -> str:
        return f"p={self.p}"


class RandomVerticalFlip(nn.Module):
    """Top and bottom exchanged with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return F.vflip(img) if _chance(self.p) else img

    def extra_repr(self) -> str:
        return f"p={self.p}"


class RandomResizedCrop(nn.Module):
    """A part of ``scale`` of the picture's area and a width of ``ratio`` times its height, in another size."""

    def __init__(
        self,
        size: Any,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = _BILINEAR,
    ) -> None:
        super().__init__()
        self.size = pair_of("size", size)
        self.scale, self.ratio = _range("scale", scale), _range("ratio", ratio)
        self.interpolation = interpolation_mode(interpolation)

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part, drawn at random; the largest one in the middle where ten draws do not
        fit."""
        _, h, w = F.get_dimensions(img)
        low, high = math.log(ratio[0]), math.log(ratio[1])
        for _ in range(10):
            area = h * w * _uniform(*scale)
            aspect = math.exp(_uniform(low, high))
            width, height = int(round(math.sqrt(area * aspect))), int(round(math.sqrt(area / aspect)))
            if 0 < width <= w and 0 < height <= h:
                return int(torch.randint(h - height + 1, ())), int(torch.randint(w - width + 1, ())), height, width
        width = int(round(h * ratio[1])) if w / h > ratio[1] else w
        height = int(round(w / ratio[0])) if w / h < ratio[0] else h
        return (h - height) // 2, (w - width) // 2, height, width

    def forward(self, img: Any) -> Any:
        return F.resized_crop(img, *self.get_params(img, self.scale, self.ratio), self.size, self.interpolation)

    def extra_repr(self) -> str:
        return f"size={self.size}, scale={self.scale}, ratio={self.ratio}, interpolation={self.interpolation.value}"


class RandomSizedCrop(RandomResizedCrop):
    """The old name of ``RandomResizedCrop``."""


class FiveCrop(nn.Module):
    """The four corners and the middle, as a tuple."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = pair_of("size", size)

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.five_crop(img, self.size)


class TenCrop(nn.Module):
    """``FiveCrop`` of the picture and of the picture flipped, as a tuple."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size, self.vertical_flip = pair_of("size", size), vertical_flip

    def forward(self, img: Any) -> tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)


class ColorJitter(nn.Module):
    """Other brightness, contrast, saturation and hue, in any order. A number f is a factor from max(0, 1 - f) to 1 + f,
    for ``hue`` from -f to f; or give the bounds."""

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        super().__init__()
        self.brightness = _bounds("brightness", brightness, 1.0, 0.0, math.inf)
        self.contrast = _bounds("contrast", contrast, 1.0, 0.0, math.inf)
        self.saturation = _bounds("saturation", saturation, 1.0, 0.0, math.inf)
        self.hue = _bounds("hue", hue, 0.0, -0.5, 0.5)

    def forward(self, img: Any) -> Any:
        changes = (
            (F.adjust_brightness, self.brightness),
            (F.adjust_contrast, self.contrast),
            (F.adjust_saturation, self.saturation),
            (F.adjust_hue, self.hue),
        )
        for number in torch.randperm(len(changes)).tolist():
            change, bounds = changes[number]
            if bounds is not None:
                img = change(img, _uniform(*bounds))
        return img

    def extra_repr(self) -> str:
        return f"brightness={self.brightness}, contrast={self.contrast}, saturation={self.saturation}, hue={self.hue}"


class RandomRotation(nn.Module):
    """Turned by an angle from -``degrees`` to ``degrees``, or between two angles."""

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = _NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
        resample: Any = None,
    ) -> None:
        super().__init__()
        self.degrees = _angles("degrees", degrees)
        self.interpolation = interpolation_mode(interpolation if resample is None else resample)
        self.expand, self.center, self.fill = expand, center, fill

    def forward(self, img: Any) -> Any:
        return F.rotate(img, _uniform(*self.degrees), self.interpolation, self.expand, self.center, self.fill)

    def extra_repr(self) -> str:
        return f"degrees={self.degrees}, interpolation={self.interpolation.value}, expand={self.expand}"


class RandomAffine(nn.Module):
    """Turned by up to ``degrees``, moved by up to shares ``translate`` of width and height, scaled by a factor of
    ``scale``, sheared by up to ``shear`` degrees (x; or bounds for x; or bounds for x and y)."""

    def __init__(
        self,
        degrees: Any,
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: Any = None,
        interpolation: Any = _NEAREST,
        fill: Any = 0,
        fillcolor: Any = None,
        resample: Any = None,
        center: Any = None,
    ) -> None:
        super().__init__()
        self.degrees = _angles("degrees", degrees)
        if translate is not None and (len(translate) != 2 or not all(0 <= share <= 1 for share in translate)):
            raise ArgumentError(f"translate is two shares from 0 to 1, of width and height, got {translate!r}")
        if shear is not None and not isinstance(shear, (int, float)) and len(shear) not in (2, 4):
            raise ArgumentError(f"shear is a number, two or four of them, got {shear!r}")
        self.translate, self.scale = translate, None if scale is None else _range("scale", scale)
        self.shear = (
            None if shear is None else _angles("shear", shear) if isinstance(shear, (int, float)) else tuple(shear)
        )
        self.interpolation = interpolation_mode(interpolation if resample is None else resample)
        self.fill = fill if fillcolor is None else fillcolor
        self.center = center

    def forward(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        angle = _uniform(*self.degrees)
        x, y = self.translate or (0.0, 0.0)
        moved = (int(round(_uniform(-x * width, x * width))), int(round(_uniform(-y * height, y * height))))
        factor = 1.0 if self.scale is None else _uniform(*self.scale)
        sheared = (0.0, 0.0)
        if self.shear is not None:
            sheared = (_uniform(*self.shear[:2]), _uniform(*self.shear[2:]) if len(self.shear) == 4 else 0.0)
        return F.affine(img, angle, moved, factor, sheared, self.interpolation, self.fill, self.center)


class Grayscale(nn.Module):
    """Without colours, with one channel or three equal ones."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(nn.Module):
    """Without colours with probability ``p``; the channels stay as many."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, 3 if F.get_dimensions(img)[0] == 3 else 1) if _chance(self.p) else img


class GaussianBlur(nn.Module):
    """Blurred by a bell of ``kernel_size`` and a ``sigma`` drawn between two numbers, or given."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.sigma = (float(sigma), float(sigma)) if isinstance(sigma, (int, float)) else _range("sigma", sigma)

    def forward(self, img: Any) -> Any:
        return F.gaussian_blur(img, self.kernel_size, _uniform(*self.sigma))


class Solarization(nn.Module):
    """Pixels above the middle inverted, with probability ``p``; of PIL pictures."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__()
        self.p = p

    def forward(self, img: Image.Image) -> Image.Image:
        return ImageOps.solarize(img) if _chance(self.p) else img


def _uniform(low: float, high: float) -> float:
    return low if low == high else float(torch.empty(()).uniform_(low, high))


def _chance(p: float) -> bool:
    return bool(torch.rand(()) < p)


def _range(what: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, Sequence) or len(value) != 2 or not 0 < value[0] <= value[1]:
        raise ArgumentError(f"{what} is two numbers above 0, the lower first, got {value!r}")
    return float(value[0]), float(value[1])


def _angles(what: str, value: Any) -> tuple[float, ...]:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ArgumentError(f"{what} is at least 0, or two angles, got {value!r}")
        return -float(value), float(value)
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ArgumentError(f"{what} is a number or two of them, got {value!r}")
    return float(value[0]), float(value[1])


def _bounds(what: str, value: Any, middle: float, lowest: float, highest: float) -> tuple[float, float] | None:
    """Bounds of a factor; None where it is always the one that changes nothing."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ArgumentError(f"{what} is at least 0, or two bounds, got {value!r}")
        low, high = middle - value, middle + value
        low = max(low, 0.0) if middle else low
    elif isinstance(value, Sequence) and len(value) == 2:
        low, high = float(value[0]), float(value[1])
    else:
        raise ArgumentError(f"{what} is a number or two of them, got {value!r}")
    if not lowest <= low <= high <= highest:
        raise ArgumentError(f"{what} is between {lowest} and {highest}, the lower bound first, got {value!r}")
    return None if low == high == middle else (low, high)
