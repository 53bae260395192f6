"""``decode_ofrecord``: reader and decoders in one call, each blob described by a ``BlobConf``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.data.arguments import feature_name, positive, row_shape, row_spec
from oneflow.engine.data.decode import (
    BytesDecoder,
    CenterCropped,
    Cropped,
    Decoder,
    Normalised,
    PictureStep,
    RandomlySized,
    RawDecoder,
    Resized,
    SideResized,
    SteppedDecoder,
    mirrored,
    swapped,
)
from oneflow.engine.data.pipeline import Reading, RecordSource
from oneflow.engine.data.reader_ops import open_pipeline
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.trace import require_trace

_NAMED_STEPS: dict[str, PictureStep] = {"bgr2rgb": swapped, "mirror": mirrored}
_CHANNEL_AXES = {"channels_last": -1, "channels_first": 0, "no_channel": None}


@dataclass(frozen=True)
class RawCodec:
    """Numbers as they are. ``auto_zero_padding``: a feature with fewer values than the shape is filled up with
    zeros."""

    auto_zero_padding: bool = False


@dataclass(frozen=True)
class BytesListCodec:
    """Every entry of a bytes feature in a line of the shape (most entries, longest entry), zeros behind it."""


class ImagePreprocessor:
    """A change of a picture by name: "bgr2rgb" swaps the colours, "mirror" flips every second picture left to right, at
    random."""

    def __init__(self, preprocessor: str) -> None:
        if preprocessor not in _NAMED_STEPS:
            raise ArgumentError(f"ImagePreprocessor takes {' or '.join(map(repr, _NAMED_STEPS))}, got {preprocessor!r}")
        self.preprocessor = preprocessor

    def step(self) -> PictureStep:
        return _NAMED_STEPS[self.preprocessor]


@dataclass(frozen=True)
class ImageResizePreprocessor:
    """Makes a picture exactly ``width`` by ``height``, by OpenCV's bilinear interpolation."""

    width: int
    height: int

    def __post_init__(self) -> None:
        positive("ImageResizePreprocessor", width=self.width, height=self.height)

    def step(self) -> PictureStep:
        return Resized(self.width, self.height)


@dataclass(frozen=True)
class ImageCropPreprocessor:
    """Takes a part of ``width`` by ``height`` out of a picture, at a random place, or with ``random_xy=False`` at
    (``x``, ``y``)."""

    width: int
    height: int
    x: int = 0
    y: int = 0
    random_xy: bool = True

    def __post_init__(self) -> None:
        positive("ImageCropPreprocessor", width=self.width, height=self.height)
        if self.x < 0 or self.y < 0:
            raise ArgumentError(f"ImageCropPreprocessor: x and y are at least 0, got {self.x} and {self.y}")

    def step(self) -> PictureStep:
        return Cropped(self.width, self.height, self.x, self.y, self.random_xy)


@dataclass(frozen=True)
class ImageCenterCropPreprocessor:
    """Takes the largest part of the shape ``width`` by ``height`` out of the middle of a picture, and makes it that
    large, bilinearly."""

    width: int
    height: int

    def __post_init__(self) -> None:
        positive("ImageCenterCropPreprocessor", width=self.width, height=self.height)

    def step(self) -> PictureStep:
        return CenterCropped(self.width, self.height)


@dataclass(frozen=True)
class ImageCropWithRandomSizePreprocessor:
    """Takes a part of random size out of a picture, at a random place: between the two shares ``area`` of its pixels,
    with a width by height between the two of ``aspect_ratio``. After ``max_attempts`` that do not fit it takes the
    largest part that has such a shape. Resize what it gives."""

    aspect_ratio: tuple[float, float] = (0.75, 1.33)
    area: tuple[float, float] = (0.05, 1.0)
    max_attempts: int = 100

    def __post_init__(self) -> None:
        positive("ImageCropWithRandomSizePreprocessor", max_attempts=self.max_attempts)
        for name, pair, most in (("aspect_ratio", self.aspect_ratio, float("inf")), ("area", self.area, 1.0)):
            if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not 0 < pair[0] <= pair[1] <= most:
                raise ArgumentError(
                    f"ImageCropWithRandomSizePreprocessor: {name} is two numbers, 0 < low <= high <= {most}; got "
                    f"{pair!r}"
                )

    def step(self) -> PictureStep:
        return RandomlySized(
            (self.area[0], self.area[1]), (self.aspect_ratio[0], self.aspect_ratio[1]), self.max_attempts
        )


@dataclass(frozen=True)
class ImageTargetResizePreprocessor:
    """Makes the "shorter" or "longer" side (``resize_side``) of a picture ``target_size`` long, bilinearly; the other
    follows, and with the shorter side given the longer becomes at most ``max_size``. Crop what it gives."""

    target_size: int
    max_size: int | None = None
    resize_side: str = "shorter"

    def __post_init__(self) -> None:
        positive(
            "ImageTargetResizePreprocessor",
            target_size=self.target_size,
            **({} if self.max_size is None else {"max_size": self.max_size}),
        )
        if self.resize_side not in ("shorter", "longer"):
            raise ArgumentError(
                f"ImageTargetResizePreprocessor: resize_side is 'shorter' or 'longer', got {self.resize_side!r}"
            )

    def step(self) -> PictureStep:
        return SideResized(self.target_size, self.resize_side, self.max_size)


_Preprocessor = (
    ImagePreprocessor, ImageResizePreprocessor, ImageCropPreprocessor, ImageCenterCropPreprocessor, ImageCropWithRandomSizePreprocessor,
    ImageTargetResizePreprocessor,
)  # fmt: skip


class ImageCodec:
    """A picture, decoded in blue-green-red order (or grey where the blob has one channel), then changed by each
    preprocessor in turn."""

    def __init__(self, image_preprocessors: Sequence[Any] | None = None) -> None:
        self.image_preprocessors = tuple(image_preprocessors or ())
        for one in self.image_preprocessors:
            if not isinstance(one, _Preprocessor):
                raise ArgumentError(f"ImageCodec takes a list of flow.data.Image*Preprocessor, got {one!r}")


class NormByChannelPreprocessor:
    """``(x - mean) / std`` with a number for each channel. ``data_format`` is "channels_last", "channels_first" or
    "no_channel"."""

    def __init__(
        self,
        mean_values: Sequence[float],
        std_values: Sequence[float] = (1.0, 1.0, 1.0),
        data_format: str = "channels_last",
    ) -> None:
        if data_format not in _CHANNEL_AXES:
            raise ArgumentError(
                f"NormByChannelPreprocessor: data_format is one of {', '.join(_CHANNEL_AXES)}; got {data_format!r}"
            )
        if not all(std_values):
            raise ArgumentError(f"NormByChannelPreprocessor: a std of 0 cannot be divided by, got {std_values!r}")
        self.mean_values = tuple(mean_values)
        self.std_values = tuple(std_values)
        self.data_format = data_format

    def on(self, inner: Decoder, blob: str) -> Decoder:
        axis = _CHANNEL_AXES[self.data_format]
        channels = 1 if axis is None else inner.row.shape[axis] if inner.row.shape else 0
        mean, std = self.mean_values, self.std_values
        if axis is None:
            mean, std = mean[:1], std[:1]
        if not inner.row.dtype.is_floating_point or len(mean) != channels or len(std) != channels:
            raise ArgumentError(
                f"blob {blob!r}: NormByChannelPreprocessor normalises a float blob by one mean and std a channel, "
                f"got {len(mean)} and {len(std)} for {channels} channels of {inner.row} ({self.data_format})"
            )
        return Normalised(inner, mean, std, axis)


class BlobConf:
    """One blob of ``decode_ofrecord``: the feature ``name`` of every record, its shape without the batch, dtype and
    codec.

    ``preprocessors`` (``NormByChannelPreprocessor``) change the decoded numbers.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        codec: Any,
        preprocessors: Sequence[Any] | None = None,
    ) -> None:
        self.name = feature_name("BlobConf", name)
        self.shape = row_shape("BlobConf", shape)
        self.dtype = as_dtype(dtype).torch
        self.codec = codec
        self.preprocessors = tuple(preprocessors or ())


def decode_ofrecord(
    ofrecord_dir: str | os.PathLike[str],
    blobs: Sequence[BlobConf],
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    shuffle: bool = False,
    buffer_size: int = 1024,
    name: str | None = None,
    seed: int = 0,
    on_error: str = "raise",
    max_errors: int = 100,
) -> tuple[Blob, ...]:
    """Reader and decoders in one: a blob of shape ``(batch_size, *conf.shape)`` for each BlobConf, in their order.

    Files, order and errors are as in ``ofrecord_reader``; ``shuffle`` mixes the records in a buffer of ``buffer_size``.
    """
    trace = require_trace("flow.data.decode_ofrecord")
    if not isinstance(blobs, (list, tuple)) or not blobs or not all(isinstance(blob, BlobConf) for blob in blobs):
        raise ArgumentError(f"decode_ofrecord takes a list or tuple of flow.data.BlobConf, got {blobs!r}")
    positive("decode_ofrecord", buffer_size=buffer_size)
    decoders = [_decoder(blob) for blob in blobs]
    reading = Reading(batch_size, buffer_size if shuffle else 0, False, seed, on_error, max_errors)
    full = trace.claim(name, "DecodeOFRecord")
    files = (ofrecord_dir, data_part_num, part_name_prefix, part_name_suffix_length)
    nodes = trace.add_source(RecordSource(open_pipeline("decode_ofrecord", full, files, reading), decoders), full)
    return tuple(map(Blob, nodes))


def _decoder(blob: BlobConf) -> Decoder:
    decoder = _codec_decoder(blob, row_spec("decode_ofrecord", blob.shape, blob.dtype))
    for preprocessor in blob.preprocessors:
        if not isinstance(preprocessor, NormByChannelPreprocessor):
            raise UnsupportedError(
                f"blob {blob.name!r}: a preprocessor is a NormByChannelPreprocessor, got {preprocessor!r}"
            )
        decoder = preprocessor.on(decoder, blob.name)
    return decoder


def _codec_decoder(blob: BlobConf, row: TensorSpec) -> Decoder:
    codec = blob.codec
    if isinstance(codec, RawCodec):
        return RawDecoder(blob.name, row.shape, row.dtype, codec.auto_zero_padding)
    if isinstance(codec, BytesListCodec):
        if len(row.shape) != 2 or row.dtype not in (dtypes.int8, dtypes.uint8, dtypes.char):
            raise ArgumentError(
                f"blob {blob.name!r}: BytesListCodec decodes to int8, uint8 or char of (most entries, longest entry), "
                f"got {row}"
            )
        return BytesDecoder(blob.name, row.shape, row.dtype)
    if isinstance(codec, ImageCodec):
        if len(row.shape) != 3 or row.shape[-1] not in (1, 3):
            raise ArgumentError(f"blob {blob.name!r}: ImageCodec decodes to (height, width, 1 or 3), got {row.shape}")
        if row.dtype in (dtypes.int8, dtypes.char):
            raise ArgumentError(
                f"blob {blob.name!r}: {row.dtype.name} cannot hold the levels 0 to 255 of a picture; use uint8"
            )
        return SteppedDecoder(blob.name, row.shape, row.dtype, [one.step() for one in codec.image_preprocessors])
    raise UnsupportedError(
        f"blob {blob.name!r}: a codec is a flow.data.RawCodec, ImageCodec or BytesListCodec, got {codec!r}"
    )
