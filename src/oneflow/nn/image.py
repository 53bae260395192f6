"""``flow.nn.image``: pictures as modules, from the decoders of ``flow.nn`` to tensors of one size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.data import picture_arguments as arguments
from oneflow.engine.data.decode import Size
from oneflow.engine.data.samples import Buffers, Decoded, Pictures, Resized, stacked
from oneflow.engine.data.source import read

__all__ = ["Resize", "decode"]

_PICTURES = "what flow.nn.OFRecordImageDecoder or flow.nn.image.decode gave"


class decode(Module):
    """The pictures in the buffers of ``flow.nn.OFRecordBytesDecoder``, each in its own size, uint8."""

    def __init__(self, dtype: torch.dtype = torch.uint8, color_space: str = "BGR") -> None:
        super().__init__()
        if as_dtype(dtype).torch is not torch.uint8:
            raise UnsupportedError(
                f"flow.nn.image.decode gives uint8, got dtype {as_dtype(dtype).name}; cast the resized pictures"
            )
        self._color = arguments.color("flow.nn.image.decode", color_space)

    def forward(self, input: Buffers) -> Pictures:
        return read(self, self._decoded, input)

    def _decoded(self, input: Buffers) -> Pictures:
        if not isinstance(input, Buffers):
            raise ArgumentError(
                f"flow.nn.image.decode takes what flow.nn.OFRecordBytesDecoder gave, got {input!r:.200}"
            )
        return Pictures(input.records, Decoded(input.step, self._color), self._color)


class Resize(Module):
    """Pictures in another size, as ``flow.image.Resize`` makes them in jobs.

    ``target_size`` (width, height) gives ``(tensor, scale, None)``: uint8 of (batch, height, width, channels), and new
    by old size as float32 of (batch, 2), width first. With ``keep_aspect_ratio`` an int ``target_size`` is what
    ``resize_side`` becomes, limited by ``min_size`` and ``max_size``; that gives ``(pictures, scale, new_size)``, the
    pictures still of their own sizes.

    The older form gives one result: ``resize_x`` and ``resize_y`` (width and height) a tensor, ``resize_shorter``
    pictures.
    """

    def __init__(
        self,
        target_size: int | Sequence[int] | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        keep_aspect_ratio: bool = False,
        resize_side: str = "shorter",
        channels: int = 3,
        dtype: torch.dtype | None = None,
        interpolation_type: str = "auto",
        name: str | None = None,
        color_space: str | None = None,
        interp_type: str | None = None,
        resize_shorter: int = 0,
        resize_x: int = 0,
        resize_y: int = 0,
    ) -> None:
        super().__init__()
        what = "flow.nn.image.Resize"
        self._is_old = (
            color_space is not None or interp_type is not None or bool(resize_shorter or resize_x or resize_y)
        )
        self._dtype = None if dtype is None else as_dtype(dtype).torch
        self._channels = channels if color_space is None else arguments.channels_of(arguments.color(what, color_space))
        self._method = arguments.method(what, (interp_type or "Linear") if self._is_old else interpolation_type)
        self._size: Size | Callable[[int, int], Size]
        if resize_shorter:
            self._size = arguments.shorter_size(what, resize_shorter, bool(resize_x or resize_y))
        elif keep_aspect_ratio:
            self._size = arguments.kept_aspect_size(what, target_size, resize_side, min_size, max_size)
        else:
            self._size = arguments.fixed_size(what, (resize_x, resize_y) if resize_x or resize_y else target_size)

    def forward(self, image: Pictures) -> Any:
        return read(self, self._resized, image)

    def _resized(self, image: Pictures) -> Any:
        if not isinstance(image, Pictures):
            raise ArgumentError(f"flow.nn.image.Resize takes {_PICTURES}, got {image!r:.200}")
        have = arguments.channels_of(image.color)
        if self._channels != have:
            raise ArgumentError(
                f"flow.nn.image.Resize: the pictures were decoded to {image.color}, {have} channels; {self._channels} "
                f"were asked for"
            )
        sized = Pictures(image.records, Resized(image.step, self._size, self._method), image.color)
        if callable(self._size):
            return (
                sized
                if self._is_old
                else (sized, self._scale(image, sized), torch.tensor(sized.sizes, dtype=torch.int32))
            )
        pixels = stacked(image.records.values(sized.step))
        if self._is_old:
            return pixels
        return pixels if self._dtype is None else pixels.to(self._dtype), self._scale(image, sized), None

    @staticmethod
    def _scale(old: Pictures, new: Pictures) -> Tensor:
        return torch.from_numpy((np.array(new.sizes) / np.array(old.sizes)).astype(np.float32))
