"""``flow.image``: pictures inside a job.

Pictures that a reader decodes have sizes of their own, so they stay with the reader's threads until an op gives them
one size. What follows them there - resizing, cropping, mirroring, normalising - is done by those threads too, ahead of
the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow import math
from oneflow.array import cast, concat, constant
from oneflow.compat.absent import absent
from oneflow.compat.refused import REFUSED_IMAGE
from oneflow.compat.spellings import spelled
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, JobError, UnsupportedError
from oneflow.engine.data import picture_arguments as arguments
from oneflow.engine.data.arguments import positive
from oneflow.engine.data.decode import ImageDecoder, PixelDecoder, Size, SizeDecoder
from oneflow.engine.data.picture_arguments import color
from oneflow.engine.data.pipeline import Buffers, Images, coin_of, decoded, take
from oneflow.engine.data.reader_ops import random_crop as checked_crop
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ir.trace import Trace, require_trace
from oneflow.engine.ops import image as rows
from oneflow.random import coin_flip

__all__ = [
    "CoinFlip", "CropMirrorNormalize", "Resize", "crop_mirror_normalize", "decode", "flip",
    "normalize", "random_crop", "resize",
]  # fmt: skip

_IMAGES = "what flow.data.OFRecordImageDecoder or another image decoder gave"


def decode(
    images_bytes_buffer: Buffers, dtype: torch.dtype = torch.uint8, color_space: str = "BGR", name: str | None = None
) -> Images:
    """The pictures in the buffers of ``flow.data.OFRecordBytesDecoder``, each in its own size."""
    trace = take("flow.image.decode", images_bytes_buffer, Buffers, "what flow.data.OFRecordBytesDecoder gave")
    if as_dtype(dtype) is not dtypes.uint8:
        raise UnsupportedError(
            f"flow.image.decode gives uint8, got dtype {as_dtype(dtype).name}; cast the resized blob"
        )
    full = trace.claim(name, "ImageDecode")
    return Images(
        images_bytes_buffer.pipeline,
        trace.graph,
        full,
        images_bytes_buffer.key,
        color("flow.image.decode", color_space),
    )


@spelled("image.resize")
def resize(
    image: Images,
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
) -> Any:
    """Pictures in another size.

    ``target_size`` (width, height) gives ``(blob, scale, None)``: uint8 of (batch, height, width, channels), and new by
    old size as float32 of (batch, 2), width first. With ``keep_aspect_ratio`` an int ``target_size`` is what
    ``resize_side`` becomes, limited by ``min_size`` and ``max_size``; that gives ``(pictures, scale, new_size)``, the
    pictures still of their own sizes.

    The older form gives one result: ``resize_x`` and ``resize_y`` (width and height) a blob, ``resize_shorter``
    pictures.

    ``interpolation_type`` "auto" is bilinear for enlarging and the mean of the covered area for shrinking; others are
    "bilinear", "nearest_neighbor", "area" and "bicubic".
    """
    images = image
    trace = take("flow.image.Resize", images, Images, _IMAGES)
    if images.size is not None:
        raise UnsupportedError(
            f"flow.image.Resize: {images!r} was resized before; resize once, from the decoder's pictures"
        )
    full = trace.claim(name, "ImageResize")
    if color_space is not None or interp_type is not None or resize_shorter or resize_x or resize_y:
        size = (resize_x, resize_y) if resize_x or resize_y else None if resize_shorter else target_size
        return _old_resize(trace, full, images, color_space, interp_type or "Linear", resize_shorter, size)
    _check_channels("flow.image.Resize", images, channels)
    method = arguments.method("flow.image.Resize", interpolation_type)
    if keep_aspect_ratio:
        new = arguments.kept_aspect_size("flow.image.Resize", target_size, resize_side, min_size, max_size)
        sized = images.renamed(full, size=new, method=method)
        return sized, _sizes(trace, sized, scale=True), _sizes(trace, sized, scale=False)
    sized = images.renamed(full, size=arguments.fixed_size("flow.image.Resize", target_size), method=method)
    pixels = _pixels(trace, sized)
    return (pixels if dtype is None else cast(pixels, dtype)), _sizes(trace, sized, scale=True), None


def _old_resize(
    trace: Trace, name: str, images: Images, color_space: str | None, interpolation: str, shorter: int, size: Any
) -> Blob | Images:
    if color_space is not None:
        _check_channels("flow.image.Resize", images, arguments.channels_of(color("flow.image.Resize", color_space)))
    method = arguments.method("flow.image.Resize", interpolation)
    if shorter:
        return images.renamed(
            name, size=arguments.shorter_size("flow.image.Resize", shorter, size is not None), method=method
        )
    return _pixels(trace, images.renamed(name, size=arguments.fixed_size("flow.image.Resize", size), method=method))


def _pixels(trace: Trace, images: Images) -> Blob:
    """Pictures of one size as a blob; it remembers what it is made of, so that what follows can be done in the same
    go."""
    assert isinstance(images.size, tuple)
    decoder = PixelDecoder(images.key, images.size, images.crop, images.color, images.method)
    blob = decoded(trace, images.pipeline, decoder, images.op_name)
    change_op_note(blob.node, pictures=images)
    return blob


def _sizes(trace: Trace, images: Images, scale: bool) -> Blob:
    assert images.size is not None
    name = trace.claim(None, "ImageScale" if scale else "ImageSize")
    return decoded(trace, images.pipeline, SizeDecoder(images.key, images.crop, images.size, scale), name)


def crop_mirror_normalize(
    input_blob: Images | Blob,
    mirror_blob: Blob | None = None,
    color_space: str = "BGR",
    output_layout: str = "NCHW",
    crop_h: int = 0,
    crop_w: int = 0,
    crop_pos_y: float = 0.5,
    crop_pos_x: float = 0.5,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    output_dtype: torch.dtype = torch.float32,
    name: str | None = None,
) -> Blob:
    """Cuts ``crop_h`` x ``crop_w`` out of each picture, mirrors those whose ``mirror_blob`` is 1, and makes ``(x -
    mean) / std`` of it.

    Takes pictures of any size, a resized blob, or any uint8 blob of (batch, height, width, channels); 0 for the crop is
    the full size of a blob. The free space above and to the left of the crop is the share ``crop_pos_y`` and
    ``crop_pos_x`` of it. ``mean`` and ``std`` are one number, or one per channel in the order of the picture's
    channels; the result is "NCHW" or "NHWC".
    """
    trace = require_trace("flow.image.CropMirrorNormalize")
    layout = arguments.layout("flow.image.CropMirrorNormalize", output_layout)
    channels = arguments.channels_of(color("flow.image.CropMirrorNormalize", color_space))
    arguments.check_numbers("flow.image.CropMirrorNormalize", mean, std, channels)
    arguments.check_crop("flow.image.CropMirrorNormalize", crop_h, crop_w, crop_pos_y, crop_pos_x)
    images = _pictures(trace, input_blob)
    full = trace.claim(name, "CropMirrorNormalize")
    if images is None:
        assert isinstance(input_blob, Blob)
        if len(input_blob.shape) != 4:
            raise ArgumentError(
                f"flow.image.CropMirrorNormalize takes pictures of (batch, height, width, channels), got {input_blob!r}"
            )
        size = crop_h or input_blob.shape[1], crop_w or input_blob.shape[2]
        blob = emit(
            rows.crop_normalize, input_blob, size=size, position=(float(crop_pos_y), float(crop_pos_x)),
            mean=tuple(map(float, mean)), std=tuple(map(float, std)), channels=channels, layout=layout,
        )  # fmt: skip
        coin = None
    else:
        _check_channels("flow.image.CropMirrorNormalize", images, channels)
        coin = None if mirror_blob is None else coin_of(trace, images.pipeline, mirror_blob)
        decoder = ImageDecoder(
            images.key, _crop_size(images, crop_h, crop_w), images.crop, images.size or _unchanged, coin or 0.0,
            mean, std, images.color, layout, images.method, (float(crop_pos_x), float(crop_pos_y)),
        )  # fmt: skip
        blob = decoded(trace, images.pipeline, decoder, full)
    if mirror_blob is not None and coin is None:
        blob = emit(rows.mirror, blob, mirror_blob, dim=3 if layout == "CHW" else 2)
    return blob if as_dtype(output_dtype) is dtypes.float32 else cast(blob, output_dtype)


def _pictures(trace: Trace, value: Any) -> Images | None:
    """The pictures that are still with the reader's threads, also those behind a resized blob."""
    if isinstance(value, Blob):
        if value.node.graph is not trace.graph.body:
            raise JobError(f"flow.image.CropMirrorNormalize was given {value!r}, which belongs to another job")
        return op_note(value.node).pictures
    take("flow.image.CropMirrorNormalize", value, Images, f"{_IMAGES}, or a uint8 blob")
    return value


def _unchanged(width: int, height: int) -> Size:
    return width, height


def _crop_size(images: Images, height: int, width: int) -> Size:
    if isinstance(images.size, tuple):
        if width > images.size[0] or height > images.size[1]:
            raise ArgumentError(
                f"flow.image.CropMirrorNormalize: a crop of {width} x {height} does not fit in pictures of "
                f"{images.size[0]} x {images.size[1]}"
            )
        return width or images.size[0], height or images.size[1]
    positive("flow.image.CropMirrorNormalize of pictures of any size", crop_h=height, crop_w=width)
    return width, height


def _check_channels(what: str, images: Images, channels: int) -> None:
    have = arguments.channels_of(images.color)
    if channels != have:
        raise ArgumentError(
            f"{what}: {images!r} was decoded to {images.color}, {have} channels; {channels} were asked for"
        )


def flip(image: Blob, flip_code: Blob | int, name: str | None = None) -> Blob:
    """Pictures (batch, height, width, channels) turned over: code 1 left to right, 16 upside down, 17 both, 0 not at
    all.

    One int is for all, an int8 blob has a code for each. Pictures of their own sizes are resized first.
    """
    x = _sized("flow.image.flip", image)
    if isinstance(flip_code, int):
        if flip_code not in (0, 1, 16, 17):
            raise ArgumentError(
                f"flow.image.flip: a code is 0, 1 (left to right), 16 (upside down) or 17 (both), got {flip_code!r}"
            )
        flip_code = constant(flip_code, dtypes.int8, (x.shape[0],))
    sideways = emit(rows.mirror, x, math.equal(math.mod(flip_code, 16), 1), dim=2)
    return emit(rows.mirror, sideways, math.greater_equal(flip_code, 16), dim=1, name=name)


def normalize(image: Blob, std: Sequence[float], mean: Sequence[float], name: str | None = None) -> Blob:
    """``(x - mean) / std`` of pictures (batch, height, width, channels) with a number for each channel, float32."""
    x = cast(_sized("flow.image.normalize", image), dtypes.float32)
    numbers = [tuple(map(float, values)) for values in (mean, std)]
    if any(len(values) not in (1, x.shape[3]) for values in numbers) or not all(numbers[1]):
        raise ArgumentError(
            f"flow.image.normalize takes a mean and a std other than 0 for each of {x.shape[3]} channels, got {mean!r} "
            f"and {std!r}"
        )
    offset, scale = (concat([constant(value, dtypes.float32, (1,)) for value in values]) for values in numbers)
    return math.divide(x - offset, scale, name=name)


def _sized(what: str, image: Any) -> Blob:
    if isinstance(image, Images):
        raise UnsupportedError(
            f"{what}: {image!r} has pictures of their own sizes; give it what flow.image.Resize makes of them"
        )
    if not isinstance(image, Blob) or len(image.shape) != 4:
        raise ArgumentError(f"{what} takes a blob of (batch, height, width, channels), got {image!r}")
    return image


def random_crop(
    input_blob: Images,
    num_attempts: int = 10,
    seed: int | None = None,
    random_area: Sequence[float] | None = None,
    random_aspect_ratio: Sequence[float] | None = None,
    name: str | None = None,
) -> Images:
    """A random part of each picture that a decoder gave, as ``flow.data.OFRecordImageDecoderRandomCrop`` cuts it."""
    what = "flow.image.random_crop"
    trace = take(what, input_blob, Images, _IMAGES)
    if input_blob.crop is not None or input_blob.size is not None:
        raise UnsupportedError(f"{what}: {input_blob!r} was cut or resized before; crop the decoder's pictures, once")
    full = trace.claim(name, "ImageRandomCrop")
    area, ratio = random_area or (0.08, 1.0), random_aspect_ratio or (0.75, 1.333333)
    return input_blob.renamed(full, crop=checked_crop(trace, what, full, num_attempts, seed, area, ratio))


Resize = resize
CropMirrorNormalize = crop_mirror_normalize
CoinFlip = coin_flip

__getattr__ = absent("oneflow.image", REFUSED_IMAGE, lambda: globals())
