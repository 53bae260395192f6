"""From the features of a record to one row of a batch.

A decoder is a value: which features it reads, the shape and dtype of its row, and how to write it. It keeps no state,
so any thread may use it for any record; what is random comes from the sample's own ``Draws``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.data.image import (
    Window,
    aspect_window,
    center_crop,
    decode,
    decode_crop_resize_normalize,
    keep_aspect_size,
    random_crop_window,
    resize,
    size_of,
)
from oneflow.engine.data.order import Draws

Features = Mapping[str, FeatureValue]
Size = tuple[int, int]  # width, height

IMAGENET_MEAN = (123.675, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)


@runtime_checkable
class Decoder(Protocol):
    """``write`` fills ``out``, an array of ``row``'s shape and dtype, from the features named in ``keys``."""

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def row(self) -> TensorSpec: ...

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None: ...


class MissingFeature(DataError):
    """A record that has no feature of the name asked for."""


def feature(features: Features, key: str) -> FeatureValue:
    try:
        return features[key]
    except KeyError:
        raise MissingFeature(f"Field {key} not found") from None


def only_bytes(features: Features, key: str) -> Any:
    """The first entry of a bytes feature."""
    found = feature(features, key)
    if found.kind != "bytes_list" or len(found.values) == 0:
        count = 0 if found.kind is None else len(found.values)
        raise DataError(
            f"feature {key!r} is a {found.kind or 'feature without a list'} of {count}, a picture is a bytes_list of "
            f"one"
        )
    return found.values[0]


# ------------------------------------------------------------------ numbers and bytes


class RawDecoder:
    """Feature ``key`` of each record as numbers of ``shape`` and ``dtype``.

    A number list must have as many values as the shape; with ``zero_padding`` it may have fewer and zeros follow. A
    bytes feature is one entry, each byte a signed number (200 is -56) unless the dtype is uint8.
    """

    def __init__(
        self, key: str, shape: Sequence[int] = (), dtype: Any = torch.float32, zero_padding: bool = False
    ) -> None:
        self.keys = (key,)
        self.row = TensorSpec(tuple(shape), as_dtype(dtype))
        if self.row.dtype.numpy is None:
            raise ArgumentError(
                f"feature {key!r} cannot be decoded to {self.row.dtype.name}; decode to float32 and cast the batch"
            )
        self._key = key
        self._padding = zero_padding
        self._count = self.row.elements
        self._unsigned = self.row.dtype.name == "uint8"

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        values = self._numbers(feature(features, self._key))
        self._check_count(len(values))
        self._check_range(values)
        if len(values) == self._count:
            out[...] = values.reshape(out.shape)
        else:
            flat = np.zeros(self._count, out.dtype)
            flat[: len(values)] = values
            out[...] = flat.reshape(out.shape)

    def _numbers(self, found: FeatureValue) -> np.ndarray:
        if found.kind is None:
            return np.empty(0, np.float32)
        if found.kind != "bytes_list":
            return found.values
        if len(found.values) != 1:
            raise DataError(f"a bytes feature is decoded from exactly one entry, this one has {len(found.values)}")
        return np.frombuffer(found.values[0], np.uint8 if self._unsigned else np.int8)

    def _check_count(self, count: int) -> None:
        if count != self._count and not (self._padding and count < self._count):
            hint = "; auto_zero_padding=True fills up with zeros" if count < self._count else ""
            raise DataError(
                f"feature {self._key!r} has {count} values, shape {self.row.shape} takes {self._count}{hint}"
            )

    def _check_range(self, values: np.ndarray) -> None:
        """A number beyond the dtype's range is an error; a fraction is cut, or rounded, as a cast does."""
        dtype = self.row.dtype.numpy
        assert dtype is not None
        if values.dtype == dtype or values.size == 0 or np.can_cast(values.dtype, dtype):
            return
        if not _in_range(values, dtype):
            low, high = np.fmin.reduce(values), np.fmax.reduce(values)
            raise DataError(
                f"feature {self._key!r} has values from {low} to {high}, which {self.row.dtype.name} cannot hold"
            )


def _in_range(values: np.ndarray, dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return bool((np.isinf(values.astype(dtype)) == np.isinf(values)).all())
    limits = np.iinfo(dtype)
    return bool(values.min() >= limits.min and values.max() <= limits.max)


class BytesDecoder:
    """Every entry of a bytes feature in a line of ``shape`` (most entries, longest entry), zeros behind it."""

    def __init__(self, key: str, shape: Sequence[int], dtype: Any = torch.int8) -> None:
        self.keys = (key,)
        self.row = TensorSpec(tuple(shape), as_dtype(dtype))
        self._key = key
        if len(self.row.shape) != 2 or self.row.dtype.name not in ("int8", "uint8", "char"):
            raise ArgumentError(
                f"bytes are decoded to int8, uint8 or char of (most entries, longest entry), got {self.row}"
            )

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        found = feature(features, self._key)
        if found.kind not in (None, "bytes_list"):
            raise DataError(f"feature {self._key!r} is a {found.kind}, a bytes_list was expected")
        lines, longest = out.shape
        if len(found.values) > lines or any(len(entry) > longest for entry in found.values):
            lengths = [len(entry) for entry in found.values]
            raise DataError(
                f"feature {self._key!r} has entries of {lengths} bytes, shape {self.row.shape} takes {lines} of up to "
                f"{longest}"
            )
        out[...] = 0
        for line, entry in zip(out, found.values):
            line[: len(entry)] = np.frombuffer(entry, out.dtype)


# ------------------------------------------------------------------ pictures


@dataclass(frozen=True)
class RandomCrop:
    """A random part of the picture: its share of the area, its width by height, and how often to try before the largest
    that fits."""

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    attempts: int = 10
    salt: int = 1

    def window(self, width: int, height: int, draws: Draws) -> Window:
        # Crops draw from even streams and coins from odd ones: with equal salts they still have nothing to do with each
        # other.
        return random_crop_window(width, height, self.area, self.ratio, self.attempts, draws.stream(2 * self.salt))


@dataclass(frozen=True)
class Coin:
    """True with ``probability``, for each sample anew."""

    probability: float = 0.5
    salt: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ArgumentError(f"a probability is from 0 to 1, got {self.probability!r}")

    def toss(self, draws: Draws) -> bool:
        return draws.stream(2 * self.salt + 1)() < self.probability


class CoinDecoder:
    """The coin itself as a row: 0 or 1."""

    keys: tuple[str, ...] = ()
    row = TensorSpec((), dtypes.int8)

    def __init__(self, coin: Coin) -> None:
        self._coin = coin

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        out[...] = self._coin.toss(draws)


class ImageDecoder:
    """The picture in ``key`` as float32: decoded, cropped, resized, flipped and normalised, straight into its row.

    ``crop`` takes a random part first; the picture or part is then made ``resize`` (width, height) - or what that
    function makes of its width and height - and cut to ``size`` at ``anchor``. Without ``resize`` it is made ``size``
    at once. ``flip`` mirrors it left to right with a probability; a level from 0 to 255 becomes ``(level - mean) /
    std``. ``method`` is a way of resizing of ``oneflow.engine.data.image``; ``layout`` is "CHW" or "HWC".
    """

    def __init__(
        self,
        key: str = "encoded",
        size: int | Size = 224,
        crop: RandomCrop | None = None,
        resize: Size | Callable[[int, int], Size] | None = None,
        flip: float | Coin = 0.0,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        color: str = "RGB",
        layout: str = "CHW",
        method: str = "antialias",
        anchor: tuple[float, float] = (0.5, 0.5),
    ) -> None:
        width, height = (size, size) if isinstance(size, int) else size
        if not (width > 0 and height > 0 and all(0 <= share <= 1 for share in anchor)):
            raise ArgumentError(
                f"size is at least 1 and anchor from 0 to 1 on both sides, got size={size!r} and anchor={anchor!r}"
            )
        channels = 1 if color == "GRAY" else 3
        self.keys = (key,)
        self.row = TensorSpec(
            (channels, height, width) if layout == "CHW" else (height, width, channels), dtypes.float32
        )
        self._key, self._crop, self._size = key, crop, resize
        self._coin = flip if isinstance(flip, Coin) else Coin(flip) if flip else None
        self._mean, self._std = tuple(mean), tuple(std)
        self._how: dict[str, Any] = {"method": method, "color": color, "layout": layout, "anchor": anchor}

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        data = only_bytes(features, self._key)
        crop = self._crop
        window = None if crop is None else lambda width, height: crop.window(width, height, draws)
        flip = self._coin is not None and self._coin.toss(draws)
        decode_crop_resize_normalize(data, window, self._size, flip, self._mean, self._std, out, **self._how)


class PixelDecoder:
    """The picture in ``key`` as uint8 of (height, width, channels): decoded, a random part taken, resized to
    ``size``."""

    def __init__(
        self, key: str, size: Size, crop: RandomCrop | None = None, color: str = "BGR", method: str = "auto"
    ) -> None:
        self.keys = (key,)
        self.row = TensorSpec((size[1], size[0], 1 if color == "GRAY" else 3), dtypes.uint8)
        self._key, self._size, self._crop, self._color, self._method = key, size, crop, color, method

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        image = decode(only_bytes(features, self._key), self._color)
        if self._crop is not None:
            window = self._crop.window(image.shape[1], image.shape[0], draws)
            image = image[window.y : window.y + window.h, window.x : window.x + window.w]
        out[...] = resize(image, *self._size, self._method)


class SizeDecoder:
    """What resizing makes of a picture's size: its new (width, height) as int32, or ``scale``, new by old, as
    float32."""

    def __init__(self, key: str, crop: RandomCrop | None, size: Size | Callable[[int, int], Size], scale: bool) -> None:
        self.keys = (key,)
        self.row = TensorSpec((2,), dtypes.float32 if scale else dtypes.int32)
        self._key, self._crop, self._size, self._scale = key, crop, size, scale

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        width, height = size_of(only_bytes(features, self._key))
        if self._crop is not None:
            _, _, width, height = self._crop.window(width, height, draws)
        new = self._size(width, height) if callable(self._size) else self._size
        out[...] = (new[0] / width, new[1] / height) if self._scale else new


# ------------------------------------------------------------------ pictures step by step, as decode_ofrecord has them


class PictureStep(Protocol):
    """One change of a uint8 picture (height, width, channels)."""

    def __call__(self, image: np.ndarray, draws: Draws, salt: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Resized:
    width: int
    height: int

    def __call__(self, image: np.ndarray, draws: Draws, salt: int) -> np.ndarray:
        return resize(image, self.width, self.height, "linear")


@dataclass(frozen=True)
class Cropped:
    """A part of fixed size, at a place that is given or random."""

    width: int
    height: int
    x: int = 0
    y: int = 0
    random_xy: bool = True

    def __call__(self, image: np.ndarray, draws: Draws, salt: int) -> np.ndarray:
        height, width = image.shape[:2]
        if self.random_xy:
            stream = draws.stream(salt)
            window = center_crop(width, height, self.width, self.height, (0, 0))
            y, x = (int(stream() * (free + 1)) for free in (height - window.h, width - window.w))
        else:
            y, x = self.y, self.x
            if x + self.width > width or y + self.height > height:
                raise DataError(
                    f"a crop of {self.width} x {self.height} at ({x}, {y}) does not lie in a picture of {width} x "
                    f"{height}"
                )
        return image[y : y + self.height, x : x + self.width]


@dataclass(frozen=True)
class CenterCropped:
    """The largest part in the middle that has the shape of ``width`` by ``height``, made that large."""

    width: int
    height: int

    def __call__(self, image: np.ndarray, draws: Draws, salt: int) -> np.ndarray:
        window = aspect_window(image.shape[1], image.shape[0], self.width / self.height)
        return resize(_part(image, window), self.width, self.height, "linear")


@dataclass(frozen=True)
class RandomlySized:
    """A part of random size and shape, at a random place."""

    area: tuple[float, float]
    ratio: tuple[float, float]
    attempts: int

    def __call__(self, image: np.ndarray, draws: Draws, salt: int) -> np.ndarray:
        return _part(
            image,
            random_crop_window(
                image.shape[1], image.shape[0], self.area, self.ratio, self.attempts, draws.stream(salt)
            ),
        )


@dataclass(frozen=True)
class SideResized:
    """The picture with one side made ``target``; the other one follows."""

    target: int
    side: str
    max_size: int | None

    def __call__(self, image: np.ndarray, draws: Draws, salt: int) -> np.ndarray:
        size = keep_aspect_size(image.shape[1], image.shape[0], self.target, self.side, max_size=self.max_size)
        return resize(image, *size, "linear")


def _part(image: np.ndarray, window: Window) -> np.ndarray:
    return image[window.y : window.y + window.h, window.x : window.x + window.w]


def mirrored(image: np.ndarray, draws: Draws, salt: int) -> np.ndarray:
    """Left to right, for every second picture."""
    return image[:, ::-1] if draws.stream(salt)() < 0.5 else image


def swapped(image: np.ndarray, draws: Draws, salt: int) -> np.ndarray:
    """Blue and red exchanged."""
    return image[:, :, ::-1]


class SteppedDecoder:
    """A picture through ``steps``, in blue-green-red, or grey where the row has one channel; then it must be of
    ``shape`` exactly."""

    def __init__(self, key: str, shape: Sequence[int], dtype: Any, steps: Sequence[PictureStep]) -> None:
        self.keys = (key,)
        self.row = TensorSpec(tuple(shape), as_dtype(dtype))
        self._key, self._steps = key, tuple(steps)

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        image = decode(only_bytes(features, self._key), "GRAY" if self.row.shape[-1] == 1 else "BGR")
        for number, step in enumerate(self._steps):
            image = step(image, draws, number)
        if image.shape != self.row.shape:
            raise DataError(
                f"the picture in feature {self._key!r} is {image.shape} (height, width, channels) where shape "
                f"{self.row.shape} was asked for; "
                "give ImageCodec an ImageResizePreprocessor(width, height)"
            )
        out[...] = image


class Normalised:
    """What another decoder writes, then ``(x - mean) / std`` along ``axis``."""

    def __init__(self, inner: Decoder, mean: Sequence[float], std: Sequence[float], axis: int | None) -> None:
        self.keys, self.row = inner.keys, inner.row
        shape = [1] * len(self.row.shape)
        if axis is not None:
            shape[axis] = len(mean)
        dtype = self.row.dtype.numpy
        self._inner = inner
        self._mean = np.asarray(mean, dtype).reshape(shape)
        self._std = np.asarray(std, dtype).reshape(shape)

    def write(self, features: Features, out: np.ndarray, draws: Draws) -> None:
        self._inner.write(features, out, draws)
        np.subtract(out, self._mean, out=out)
        np.divide(out, self._std, out=out)
