"""Changes of a PIL picture, each by one number, and how a magnitude from 0 to 10 becomes that number."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageEnhance, ImageOps

MAX_LEVEL = 10.0
_TRANSLATE_CONST = 250
_TRANSLATE_PCT = 0.45
_RESAMPLING = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


def shear_x(img: Image.Image, factor: float, **kwargs: Any) -> Image.Image:
    """Rows moved sideways, the more the lower they are."""
    return _moved(img, (1, factor, 0, 0, 1, 0), kwargs)


def shear_y(img: Image.Image, factor: float, **kwargs: Any) -> Image.Image:
    """Columns moved up or down, the more the further right they are."""
    return _moved(img, (1, 0, 0, factor, 1, 0), kwargs)


def translate_x_rel(img: Image.Image, pct: float, **kwargs: Any) -> Image.Image:
    """Moved sideways by a share of the width."""
    return _moved(img, (1, 0, pct * img.width, 0, 1, 0), kwargs)


def translate_y_rel(img: Image.Image, pct: float, **kwargs: Any) -> Image.Image:
    """Moved up or down by a share of the height."""
    return _moved(img, (1, 0, 0, 0, 1, pct * img.height), kwargs)


def translate_x_abs(img: Image.Image, pixels: float, **kwargs: Any) -> Image.Image:
    """Moved sideways by pixels."""
    return _moved(img, (1, 0, pixels, 0, 1, 0), kwargs)


def translate_y_abs(img: Image.Image, pixels: float, **kwargs: Any) -> Image.Image:
    """Moved up or down by pixels."""
    return _moved(img, (1, 0, 0, 0, 1, pixels), kwargs)


def rotate(img: Image.Image, degrees: float, **kwargs: Any) -> Image.Image:
    """Turned counter-clockwise."""
    return img.rotate(degrees, resample=_resampling(kwargs), fillcolor=kwargs.get("fillcolor"))


def auto_contrast(img: Image.Image, **__: Any) -> Image.Image:
    """Stretched to the whole range."""
    return ImageOps.autocontrast(img)


def invert(img: Image.Image, **__: Any) -> Image.Image:
    """Dark and light exchanged."""
    return ImageOps.invert(img)


def equalize(img: Image.Image, **__: Any) -> Image.Image:
    """All brightnesses equally often."""
    return ImageOps.equalize(img)


def solarize(img: Image.Image, thresh: int, **__: Any) -> Image.Image:
    """Inverted where it is at least ``thresh``."""
    return ImageOps.solarize(img, thresh)


def solarize_add(img: Image.Image, add: int, thresh: int = 128, **__: Any) -> Image.Image:
    """Lighter by ``add`` where it is below ``thresh``."""
    table = [min(255, value + add) if value < thresh else value for value in range(256)]
    return img.point(table * len(img.getbands())) if img.mode in ("L", "RGB") else img


def posterize(img: Image.Image, bits_to_keep: int, **__: Any) -> Image.Image:
    """Only the highest bits of every value; with none it is black."""
    if bits_to_keep >= 8:
        return img
    return ImageOps.posterize(img, bits_to_keep) if bits_to_keep > 0 else Image.new(img.mode, img.size)


def contrast(img: Image.Image, factor: float, **__: Any) -> Image.Image:
    """0 is grey, 1 the picture itself."""
    return ImageEnhance.Contrast(img).enhance(factor)


def color(img: Image.Image, factor: float, **__: Any) -> Image.Image:
    """0 is black and white, 1 the picture itself."""
    return ImageEnhance.Color(img).enhance(factor)


def brightness(img: Image.Image, factor: float, **__: Any) -> Image.Image:
    """0 is black, 1 the picture itself."""
    return ImageEnhance.Brightness(img).enhance(factor)


def sharpness(img: Image.Image, factor: float, **__: Any) -> Image.Image:
    """0 is blurred, 1 the picture itself."""
    return ImageEnhance.Sharpness(img).enhance(factor)


def _resampling(kwargs: Mapping[str, Any]) -> Any:
    """The way to interpolate; one of several is drawn."""
    given = kwargs.get("resample", _RESAMPLING)
    return random.choice(given) if isinstance(given, (tuple, list)) else given


def _moved(img: Image.Image, matrix: tuple[float, ...], kwargs: Mapping[str, Any]) -> Image.Image:
    return img.transform(
        img.size, Image.Transform.AFFINE, matrix, resample=_resampling(kwargs), fillcolor=kwargs.get("fillcolor")
    )


# ---------------------------------------------------------------------------------------------------- magnitudes to
# numbers

Level = Callable[[float, Mapping[str, Any]], tuple[float, ...]]


def _either_way(value: float) -> float:
    return -value if random.random() > 0.5 else value


def _nothing(level: float, hparams: Mapping[str, Any]) -> tuple[float, ...]:
    return ()


def _angle(level: float, hparams: Mapping[str, Any]) -> tuple[float, ...]:
    return (_either_way(level / MAX_LEVEL * 30.0),)


def _factor(level: float, hparams: Mapping[str, Any]) -> tuple[float, ...]:
    return (level / MAX_LEVEL * 1.8 + 0.1,)


def _rising_factor(level: float, hparams: Mapping[str, Any]) -> tuple[float, ...]:
    return (max(0.1, 1.0 + _either_way(level / MAX_LEVEL * 0.9)),)


def _shear(level: float, hparams: Mapping[str, Any]) -> tuple[float, ...]:
    return (_either_way(level / MAX_LEVEL * 0.3),)


def _pixels(level: float, hparams: Mapping[str, Any]) -> tuple[float, ...]:
    return (_either_way(level / MAX_LEVEL * float(hparams.get("translate_const", _TRANSLATE_CONST))),)


def _share(level: float, hparams: Mapping[str, Any]) -> tuple[float, ...]:
    return (_either_way(level / MAX_LEVEL * hparams.get("translate_pct", _TRANSLATE_PCT)),)


def _bits(level: float, hparams: Mapping[str, Any]) -> tuple[int, ...]:
    return (int(level / MAX_LEVEL * 4),)


def _falling_bits(level: float, hparams: Mapping[str, Any]) -> tuple[int, ...]:
    return (4 - int(level / MAX_LEVEL * 4),)


def _original_bits(level: float, hparams: Mapping[str, Any]) -> tuple[int, ...]:
    return (int(level / MAX_LEVEL * 4) + 4,)


def _threshold(level: float, hparams: Mapping[str, Any]) -> tuple[int, ...]:
    return (min(256, int(level / MAX_LEVEL * 256)),)


def _falling_threshold(level: float, hparams: Mapping[str, Any]) -> tuple[int, ...]:
    return (256 - min(256, int(level / MAX_LEVEL * 256)),)


def _added(level: float, hparams: Mapping[str, Any]) -> tuple[int, ...]:
    return (min(128, int(level / MAX_LEVEL * 110)),)


@dataclass(frozen=True)
class Change:
    """A change, and what a magnitude means for it."""

    apply: Callable[..., Image.Image]
    number: Level


CHANGES: dict[str, Change] = {
    "AutoContrast": Change(auto_contrast, _nothing),
    "Equalize": Change(equalize, _nothing),
    "Invert": Change(invert, _nothing),
    "Rotate": Change(rotate, _angle),
    "Posterize": Change(posterize, _bits),
    "PosterizeIncreasing": Change(posterize, _falling_bits),
    "PosterizeOriginal": Change(posterize, _original_bits),
    "Solarize": Change(solarize, _threshold),
    "SolarizeIncreasing": Change(solarize, _falling_threshold),
    "SolarizeAdd": Change(solarize_add, _added),
    "Color": Change(color, _factor),
    "ColorIncreasing": Change(color, _rising_factor),
    "Contrast": Change(contrast, _factor),
    "ContrastIncreasing": Change(contrast, _rising_factor),
    "Brightness": Change(brightness, _factor),
    "BrightnessIncreasing": Change(brightness, _rising_factor),
    "Sharpness": Change(sharpness, _factor),
    "SharpnessIncreasing": Change(sharpness, _rising_factor),
    "ShearX": Change(shear_x, _shear),
    "ShearY": Change(shear_y, _shear),
    "TranslateX": Change(translate_x_abs, _pixels),
    "TranslateY": Change(translate_y_abs, _pixels),
    "TranslateXRel": Change(translate_x_rel, _share),
    "TranslateYRel": Change(translate_y_rel, _share),
}
