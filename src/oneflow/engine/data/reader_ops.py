"""``ofrecord_reader`` and its decoders: records in a job, each reader moving on by one batch at every call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError, DataError, UnsupportedError, user_line
from oneflow.engine.data import picture_arguments as arguments
from oneflow.engine.data.arguments import at_least, feature_name, positive, row_spec
from oneflow.engine.data.decode import PixelDecoder, RandomCrop, RawDecoder
from oneflow.engine.data.order import part_names
from oneflow.engine.data.picture_arguments import color
from oneflow.engine.data.pipeline import Buffers, Images, Reading, RecordPipeline, Records, decoded, take
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.trace import Trace, require_trace
from oneflow.engine.ops.kernels.counter_random import stable_seed

_READER = "what flow.data.ofrecord_reader gave"


def ofrecord_reader(
    ofrecord_dir: str | os.PathLike[str],
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    random_shuffle: bool = False,
    shuffle_buffer_size: int = 1024,
    shuffle_after_epoch: bool = False,
    name: str | None = None,
    seed: int = 0,
    on_error: str = "raise",
    max_errors: int = 100,
) -> Records:
    """A reader of OFRecord part files that every call of the job moves on by one batch.

    The parts are ``<prefix><index>``, the index padded with zeros to ``part_name_suffix_length``. They are read one
    after the other without end, a batch may straddle two rounds. ``random_shuffle`` mixes records in a buffer of
    ``shuffle_buffer_size``; ``shuffle_after_epoch`` reads the parts in a new order in each round after the first. The
    order is a function of ``seed`` and the files, and so are the crops and flips of the samples. Give the result to a
    decoder such as ``OFRecordRawDecoder``. Threads read and decode ahead of the job.

    A record that cannot be read is an error that names it; with ``on_error="skip"`` the next record takes its place, up
    to ``max_errors`` times.
    """
    trace = require_trace("flow.data.ofrecord_reader")
    full = trace.claim(name, "OFRecordReader")
    positive("ofrecord_reader", shuffle_buffer_size=shuffle_buffer_size)
    reading = Reading(
        batch_size, shuffle_buffer_size if random_shuffle else 0, bool(shuffle_after_epoch), seed, on_error, max_errors
    )
    files = (ofrecord_dir, data_part_num, part_name_prefix, part_name_suffix_length)
    return Records(open_pipeline("ofrecord_reader", full, files, reading), trace.graph, full)


def ofrecord_loader(
    ofrecord_dir: str | os.PathLike[str],
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    shuffle: bool = False,
    shuffle_buffer_size: int = 1024,
    name: str | None = None,
) -> Records:
    """``ofrecord_reader`` by its older name, with ``shuffle`` for ``random_shuffle``."""
    return ofrecord_reader(
        ofrecord_dir,
        batch_size,
        data_part_num,
        part_name_prefix,
        part_name_suffix_length,
        shuffle,
        shuffle_buffer_size,
        name=name,
    )


def open_pipeline(what: str, name: str, files: tuple[Any, int, str, int], reading: Reading) -> RecordPipeline:
    """The reader of the part files of a folder; errors name the user's line."""
    folder, parts, prefix, suffix_length = files
    positive(what, batch_size=reading.batch_size, data_part_num=parts)
    at_least(0, what, max_errors=reading.max_errors)
    if type(reading.seed) is not int:
        raise ArgumentError(f"{what}: seed is an int, got {reading.seed!r}")
    if reading.on_error not in ("raise", "skip"):
        raise ArgumentError(f"{what}: on_error is 'raise' or 'skip', got {reading.on_error!r}")
    paths: list[str] = []
    try:
        paths = [os.path.join(os.fspath(folder), part) for part in part_names(prefix, parts, suffix_length)]
        return RecordPipeline(name, paths, reading)
    except (ArgumentError, DataError) as error:
        missing = not all(map(os.path.exists, paths))
        hint = "; check the directory, data_part_num, part_name_prefix and part_name_suffix_length" if missing else ""
        raise type(error)(f"{user_line()}: {what}: {error.reason}{hint}") from None


def ofrecord_raw_decoder(
    input_blob: Records,
    blob_name: str,
    shape: Sequence[int],
    dtype: torch.dtype,
    dim1_varying_length: bool = False,
    auto_zero_padding: bool = False,
    name: str | None = None,
) -> Blob:
    """Feature ``blob_name`` of each record as numbers: a blob of shape ``(batch, *shape)``.

    Number lists must have as many values as ``shape``; with ``auto_zero_padding`` fewer are filled up with zeros. A
    bytes feature is one entry whose bytes are signed numbers, unsigned where ``dtype`` is uint8. A record without the
    feature, or with numbers that ``dtype`` cannot hold, is a ``DataError`` naming file and record.
    """
    trace = take("OFRecordRawDecoder", input_blob, Records, _READER)
    if dim1_varying_length:
        raise UnsupportedError(
            "dim1_varying_length=True is not supported; use auto_zero_padding=True and a largest shape"
        )
    row = row_spec("OFRecordRawDecoder", shape, dtype)
    decoder = RawDecoder(feature_name("OFRecordRawDecoder", blob_name), row.shape, row.dtype, bool(auto_zero_padding))
    return decoded(trace, input_blob.pipeline, decoder, trace.claim(name, "OFRecordRawDecoder"))


def ofrecord_image_decoder(
    input_blob: Records, blob_name: str, color_space: str = "BGR", name: str | None = None
) -> Images:
    """The picture in feature ``blob_name`` of each record, in its own size: for ``flow.image.Resize`` and
    ``CropMirrorNormalize``.

    ``color_space`` is "BGR", "RGB" or "GRAY".
    """
    trace = take("OFRecordImageDecoder", input_blob, Records, _READER)
    what = "OFRecordImageDecoder"
    key = feature_name(what, blob_name)
    return Images(input_blob.pipeline, trace.graph, trace.claim(name, what), key, color(what, color_space))


def ofrecord_image_decoder_random_crop(
    input_blob: Records,
    blob_name: str,
    color_space: str = "BGR",
    num_attempts: int = 10,
    seed: int | None = None,
    random_area: Sequence[float] = (0.08, 1.0),
    random_aspect_ratio: Sequence[float] = (0.75, 1.333333),
    name: str | None = None,
) -> Images:
    """As ``OFRecordImageDecoder``, but a random part of each picture.

    A part is a share ``random_area`` of the picture, its width by height within ``random_aspect_ratio``; after
    ``num_attempts`` that do not fit, the largest part that does. The parts are a function of the reader's seed,
    ``seed`` and each sample's place in the data. Without ``seed`` it follows from the job's random seed and the op's
    name.
    """
    what = "OFRecordImageDecoderRandomCrop"
    trace = take(what, input_blob, Records, _READER)
    full = trace.claim(name, what)
    crop = random_crop(trace, what, full, num_attempts, seed, random_area, random_aspect_ratio)
    return Images(input_blob.pipeline, trace.graph, full, feature_name(what, blob_name), color(what, color_space), crop)


def ofrecord_bytes_decoder(input_blob: Records, blob_name: str, name: str | None = None) -> Buffers:
    """The bytes in feature ``blob_name`` of each record, undecoded: for ``flow.image.decode``."""
    trace = take("OFRecordBytesDecoder", input_blob, Records, _READER)
    key = feature_name("OFRecordBytesDecoder", blob_name)
    return Buffers(input_blob.pipeline, trace.graph, trace.claim(name, "OFRecordBytesDecoder"), key)


def random_crop(
    trace: Trace, what: str, name: str, attempts: int, seed: int | None, area: Sequence[float], ratio: Sequence[float]
) -> RandomCrop:
    """A checked random crop; without a seed one that follows from the job's seed and the op's name."""
    salt = stable_seed(trace.settings.random_seed, name) if seed is None else int(seed)
    return arguments.random_crop(what, attempts, salt, area, ratio)


def image_decoder_random_crop_resize(
    input_blob: Buffers,
    target_width: int,
    target_height: int,
    num_attempts: int | None = None,
    seed: int | None = None,
    random_area: Sequence[float] | None = None,
    random_aspect_ratio: Sequence[float] | None = None,
    num_workers: int | None = None,
    warmup_size: int | None = None,
    max_num_pixels: int | None = None,
    name: str | None = None,
) -> Blob:
    """A random part of each encoded picture of ``OFRecordBytesDecoder`` in one size: uint8 RGB (batch, height, width,
    3).

    The threads of the reader do it, so the numbers for workers of a GPU change nothing.
    """
    what = "ImageDecoderRandomCropResize"
    trace = take(what, input_blob, Buffers, "what flow.data.OFRecordBytesDecoder gave")
    full = trace.claim(name, what)
    area, ratio = random_area or (0.08, 1.0), random_aspect_ratio or (0.75, 1.333333)
    crop = random_crop(trace, what, full, 10 if num_attempts is None else num_attempts, seed, area, ratio)
    size = arguments.fixed_size(what, (target_width, target_height))
    return decoded(trace, input_blob.pipeline, PixelDecoder(input_blob.key, size, crop, "RGB", "auto"), full)


def ofrecord_image_classification_reader(
    ofrecord_dir: str | os.PathLike[str],
    image_feature_name: str,
    label_feature_name: str,
    batch_size: int = 1,
    data_part_num: int = 1,
    part_name_prefix: str = "part-",
    part_name_suffix_length: int = -1,
    random_shuffle: bool = False,
    shuffle_buffer_size: int = 1024,
    shuffle_after_epoch: bool = False,
    color_space: str = "BGR",
    decode_buffer_size_per_thread: int = 32,
    num_decode_threads_per_machine: int | None = None,
    name: str | None = None,
) -> tuple[Images, Blob]:
    """``ofrecord_reader``, ``OFRecordImageDecoder`` and a decoder of labels in one: pictures of their own sizes, and
    int32 labels (batch, 1).

    Threads and buffers are chosen for the machine, so the two numbers for them change nothing.
    """
    records = ofrecord_reader(
        ofrecord_dir, batch_size, data_part_num, part_name_prefix, part_name_suffix_length, random_shuffle, shuffle_buffer_size,
        shuffle_after_epoch, name=name,
    )  # fmt: skip
    return ofrecord_image_decoder(records, image_feature_name, color_space), ofrecord_raw_decoder(
        records, label_feature_name, (1,), torch.int32
    )


OFRecordRawDecoder = ofrecord_raw_decoder
OFRecordImageDecoder = ofrecord_image_decoder
OFRecordImageDecoderRandomCrop = ofrecord_image_decoder_random_crop
OFRecordBytesDecoder = ofrecord_bytes_decoder
ImageDecoderRandomCropResize = image_decoder_random_crop_resize
