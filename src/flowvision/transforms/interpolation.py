"""How pixels between pixels are found, under the names of all who know them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from PIL import Image

from oneflow.engine.core.errors import ArgumentError, nearest


class InterpolationMode(Enum):
    """Ways to interpolate. Tensors have the first three."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


PIL_MODES = {
    InterpolationMode.NEAREST: Image.Resampling.NEAREST,
    InterpolationMode.BILINEAR: Image.Resampling.BILINEAR,
    InterpolationMode.BICUBIC: Image.Resampling.BICUBIC,
    InterpolationMode.BOX: Image.Resampling.BOX,
    InterpolationMode.HAMMING: Image.Resampling.HAMMING,
    InterpolationMode.LANCZOS: Image.Resampling.LANCZOS,
}
_BY_NUMBER = {int(number): mode for mode, number in PIL_MODES.items()}


def str_to_interp_mode(mode_str: str) -> InterpolationMode:
    """The mode of a name such as "bicubic"."""
    try:
        return InterpolationMode(mode_str)
    except ValueError:
        names = [mode.value for mode in InterpolationMode]
        raise ArgumentError(
            f"interpolation is one of {names}, got {mode_str!r}.{nearest(str(mode_str), names)}"
        ) from None


def str_to_pil_interp(mode_str: str) -> int:
    """PIL's number of a name such as "bicubic"."""
    return PIL_MODES[str_to_interp_mode(mode_str)]


def interpolation_mode(value: Any) -> InterpolationMode:
    """A mode, however it is given: itself, its name, or PIL's number."""
    if isinstance(value, InterpolationMode):
        return value
    if isinstance(value, str):
        return str_to_interp_mode(value)
    if isinstance(value, int) and value in _BY_NUMBER:
        return _BY_NUMBER[value]
    raise ArgumentError(f"interpolation is an InterpolationMode, such as InterpolationMode.BILINEAR, got {value!r}")
