"""``flow.nn.modules.dataset``: records, tokens and random choice as modules. Each call of a reader moves on by one
batch, without end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError, DataError, UnsupportedError
from oneflow.engine.core.number import number
from oneflow.engine.data import picture_arguments as arguments
from oneflow.engine.data.arguments import at_least, feature_name, positive, row_spec
from oneflow.engine.data.decode import RandomCrop
from oneflow.engine.data.formats.indexed import TokenSamples, open_indexed, split_documents
from oneflow.engine.data.formats.raw_files import RawRows
from oneflow.engine.data.loader import Loader
from oneflow.engine.data.pipeline import Reading
from oneflow.engine.data.reader_ops import open_pipeline
from oneflow.engine.data.samples import (
    Buffers,
    Bytes,
    Cropped,
    Decoded,
    Numbers,
    Pictures,
    RecordReader,
    Records,
    stacked,
)
from oneflow.engine.data.source import Source, computed, read
from oneflow.engine.ops import image as rows

__all__ = [
    "CoinFlip",
    "CropMirrorNormalize",
    "GPTIndexedBinDataReader",
    "OFRecordBytesDecoder",
    "OFRecordImageDecoder",
    "OFRecordImageDecoderRandomCrop",
    "OFRecordRawDecoder",
    "OFRecordReader",
    "OfrecordRawDecoder",
    "OfrecordReader",
    "RawReader",
]


def _refuse_global(what: str, device: Any, placement: Any, sbp: Any) -> None:
    if placement is not None or sbp is not None:
        raise UnsupportedError(
            f"{what} gives local tensors: leave placement and sbp out, and make the batch global where it is used"
        )
    if device is not None and torch.device(device).type != "cpu":
        raise UnsupportedError(
            f"{what} reads into the CPU's memory, got device {device!r}; leave it out and move the batch with "
            f".to(device)"
        )


def _seed(what: str, seed: int | None) -> int:
    """The seed that was given; without one (None or -1) that of ``flow.manual_seed``."""
    if seed is None or seed == -1:
        return torch.initial_seed() % 2**31
    at_least(0, what, random_seed=seed)
    return seed


def _records(what: str, value: Any) -> Records:
    if not isinstance(value, Records):
        raise ArgumentError(f"{what} takes what flow.nn.OFRecordReader gave, got {value!r:.200}")
    return value


class OFRecordReader(Source, Module):
    """A reader of OFRecord part files: a call gives the next batch of records, for a decoder such as
    ``OFRecordRawDecoder``.

    Files, order and shuffling are those of ``flow.data.ofrecord_reader``. The order is a function of ``random_seed``
    and the files; -1 stands for the seed of ``flow.manual_seed``. Threads read ahead, and decode what was decoded of
    the batches before; ``close`` ends them.
    """

    def __init__(
        self,
        ofrecord_dir: str | os.PathLike[str],
        batch_size: int = 1,
        data_part_num: int = 1,
        part_name_prefix: str = "part-",
        part_name_suffix_length: int = -1,
        random_shuffle: bool = False,
        shuffle_buffer_size: int = 1024,
        shuffle_after_epoch: bool = False,
        random_seed: int = -1,
        device: torch.device | str | None = None,
        placement: Any = None,
        sbp: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        _refuse_global("OFRecordReader", device, placement, sbp)
        positive("OFRecordReader", shuffle_buffer_size=shuffle_buffer_size)
        buffer = shuffle_buffer_size if random_shuffle else 0
        reading = Reading(batch_size, buffer, bool(shuffle_after_epoch), _seed("OFRecordReader", random_seed))
        files = (ofrecord_dir, data_part_num, part_name_prefix, part_name_suffix_length)
        self._reader = RecordReader(
            open_pipeline("OFRecordReader", name or "OFRecordReader", files, reading).parts, reading
        )

    def forward(self) -> Records:
        return read(self, self._next)

    def _next(self) -> Records:
        return self._reader.next()

    def share(self, number: int, shares: int) -> None:
        """From the next batch on reads the records of one of so many equal shares of each."""
        self._reader.share(number, shares)

    def close(self) -> None:
        """Ends the threads; they also end when the reader is forgotten. A call afterwards goes on where it was."""
        self._reader.close()

    def state(self) -> dict[str, Any]:
        """Where it stands, as ``flow.data.Loader`` says it."""
        return self._reader.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on where ``state`` was taken, on the same files and with the same order."""
        self._reader.load_state(state)

    def extra_repr(self) -> str:
        return f"batch_size={self._reader.batch_size}"


class OFRecordRawDecoder(Module):
    """Feature ``blob_name`` of each record as numbers: (batch, *shape) of ``dtype``.

    Number lists have as many values as ``shape``; ``auto_zero_padding`` fills up fewer with zeros, ``truncate`` cuts
    more. A bytes feature is one entry whose bytes are signed numbers, unsigned where ``dtype`` is uint8.
    """

    def __init__(
        self,
        blob_name: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        dim1_varying_length: bool = False,
        truncate: bool = False,
        auto_zero_padding: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if dim1_varying_length:
            raise UnsupportedError(
                "dim1_varying_length=True is not supported; use auto_zero_padding=True and a largest shape"
            )
        row = row_spec("OFRecordRawDecoder", list(shape), dtype)
        key = feature_name("OFRecordRawDecoder", blob_name)
        self._step = Numbers(key, row.shape, row.dtype.name, bool(auto_zero_padding), bool(truncate))

    def forward(self, input: Records) -> Tensor:
        return read(self, self._decoded, input)

    def _decoded(self, input: Records) -> Tensor:
        return stacked(_records("OFRecordRawDecoder", input).values(self._step))


class OFRecordBytesDecoder(Module):
    """The bytes in feature ``blob_name`` of each record, undecoded: for ``flow.nn.image.decode``."""

    def __init__(self, blob_name: str, name: str | None = None) -> None:
        super().__init__()
        self._step = Bytes(feature_name("OFRecordBytesDecoder", blob_name))

    def forward(self, input: Records) -> Buffers:
        return read(self, self._found, input)

    def _found(self, input: Records) -> Buffers:
        return Buffers(_records("OFRecordBytesDecoder", input), self._step)


class OFRecordImageDecoder(Module):
    """The picture in feature ``blob_name`` of each record, in its own size: for ``flow.nn.image.Resize`` and
    ``CropMirrorNormalize``.

    ``color_space`` is "BGR", "RGB" or "GRAY".
    """

    def __init__(self, blob_name: str, color_space: str = "BGR") -> None:
        super().__init__()
        color = arguments.color("OFRecordImageDecoder", color_space)
        self._step = Decoded(Bytes(feature_name("OFRecordImageDecoder", blob_name)), color)

    def forward(self, input: Records) -> Pictures:
        return read(self, self._decoded, input)

    def _decoded(self, input: Records) -> Pictures:
        return Pictures(_records("OFRecordImageDecoder", input), self._step, self._step.color)


class OFRecordImageDecoderRandomCrop(Module):
    """As ``OFRecordImageDecoder``, but a random part of each picture.

    A part is a share ``random_area`` of the picture, its width by height within ``random_aspect_ratio``; after
    ``num_attempts`` that do not fit, the largest part that does. The parts are a function of the reader's seed,
    ``random_seed`` and each sample's place.
    """

    def __init__(
        self,
        blob_name: str,
        color_space: str = "BGR",
        num_attempts: int = 10,
        random_seed: int | None = None,
        random_area: Sequence[float] = (0.08, 1.0),
        random_aspect_ratio: Sequence[float] = (0.75, 1.333333),
    ) -> None:
        super().__init__()
        what = "OFRecordImageDecoderRandomCrop"
        salt = RandomCrop.salt if random_seed is None else int(random_seed)
        crop = arguments.random_crop(what, num_attempts, salt, random_area, random_aspect_ratio)
        self._step = Decoded(Bytes(feature_name(what, blob_name)), arguments.color(what, color_space), crop)

    def forward(self, input: Records) -> Pictures:
        return read(self, self._decoded, input)

    def _decoded(self, input: Records) -> Pictures:
        return Pictures(_records("OFRecordImageDecoderRandomCrop", input), self._step, self._step.color)


def _not_pictures(value: Any) -> ArgumentError:
    return ArgumentError(
        f"CropMirrorNormalize takes pictures, or uint8 of (batch, height, width, channels); got {value!r:.200}"
    )


class CropMirrorNormalize(Module):
    """Cuts ``crop_h`` x ``crop_w`` out of each picture, mirrors those whose ``mirror`` is not 0, and makes ``(x - mean)
    / std`` of it.

    Takes pictures of any size, or uint8 of (batch, height, width, channels), for which 0 for the crop is the full size.
    The free space above and to the left of the crop is the share ``crop_pos_y`` and ``crop_pos_x`` of it; the result is
    "NCHW" or "NHWC".
    """

    def __init__(
        self,
        color_space: str = "BGR",
        output_layout: str = "NCHW",
        crop_h: int = 0,
        crop_w: int = 0,
        crop_pos_y: float = 0.5,
        crop_pos_x: float = 0.5,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        output_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        what = "CropMirrorNormalize"
        self._channels = arguments.channels_of(arguments.color(what, color_space))
        self._layout = arguments.layout(what, output_layout)
        arguments.check_numbers(what, mean, std, self._channels)
        arguments.check_crop(what, crop_h, crop_w, crop_pos_y, crop_pos_x)
        self._size, self._position = (crop_h, crop_w), (float(crop_pos_y), float(crop_pos_x))
        self._mean, self._std = tuple(map(float, mean)), tuple(map(float, std))
        self._dtype = as_dtype(output_dtype).torch

    def forward(self, input: Pictures | Tensor, mirror: Tensor | None = None) -> Tensor:
        pixels = input if isinstance(input, Tensor) else read(self, self._cut, input)
        return computed(self, self._normal, pixels, mirror)

    def _normal(self, pixels: Tensor, mirror: Tensor | None) -> Tensor:
        if pixels.dim() != 4:
            raise _not_pictures(pixels)
        size = self._size[0] or pixels.shape[1], self._size[1] or pixels.shape[2]
        normal = rows.crop_normalize(
            pixels,
            size=size,
            position=self._position,
            mean=self._mean,
            std=self._std,
            channels=self._channels,
            layout=self._layout,
        )
        if mirror is not None:
            normal = rows.mirror(normal, mirror, dim=3 if self._layout == "CHW" else 2)
        return normal.to(self._dtype)

    def _cut(self, pictures: Pictures) -> Tensor:
        if not isinstance(pictures, Pictures):
            raise _not_pictures(pictures)
        height, width = self._size
        positive("CropMirrorNormalize of pictures of any size", crop_h=height, crop_w=width)
        step = Cropped(pictures.step, (width, height), (self._position[1], self._position[0]))
        return stacked(pictures.records.values(step))


class CoinFlip(Source, Module):
    """A call gives ``batch_size`` int8 numbers, each 1 with ``probability`` and else 0: for ``CropMirrorNormalize``.

    With ``random_seed`` they come from a generator of the module's own, else from torch's default one.
    """

    def __init__(
        self,
        batch_size: int = 1,
        random_seed: int | None = None,
        probability: float = 0.5,
        device: torch.device | str | None = None,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        _refuse_global("CoinFlip", device, placement, sbp)
        positive("CoinFlip", batch_size=batch_size)
        self.batch_size, self.probability = batch_size, number("CoinFlip's probability", probability, 0, 1)
        self.generator = None if random_seed is None else torch.Generator().manual_seed(random_seed)

    def forward(self) -> Tensor:
        return read(self, self._flipped)

    def _flipped(self) -> Tensor:
        return self.own_rows((torch.rand(self.batch_size, generator=self.generator) < self.probability).to(torch.int8))

    def draw_from(self, seed: int) -> None:
        """Without a seed of its own it takes this one."""
        if self.generator is None:
            self.generator = torch.Generator().manual_seed(seed)

    def state(self) -> dict[str, Any]:
        """Of its own generator; without one its flips are a matter of ``flow.get_rng_state``."""
        return {"generator": None if self.generator is None else self.generator.get_state().numpy().tobytes().hex()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on with the flips that followed when ``state`` was taken."""
        given = state.get("generator", "") if isinstance(state, dict) else ""
        if (given is None) != (self.generator is None):
            raise DataError(
                f"the saved CoinFlip had {_coin(given)}, this one has {_coin(self.generator)}; go on with the same "
                f"random_seed"
            )
        if self.generator is not None:
            _set_state(self.generator, given)

    def extra_repr(self) -> str:
        return f"batch_size={self.batch_size}, probability={self.probability}"


def _coin(generator: Any) -> str:
    return "no generator of its own" if generator is None else "a generator of its own"


def _set_state(generator: torch.Generator, given: Any) -> None:
    try:
        generator.set_state(torch.frombuffer(bytearray.fromhex(given), dtype=torch.uint8))
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"{given!r:.50} is not the state of a CoinFlip, as state() gives it") from None


class RawReader(Source, Module):
    """A reader of files that hold rows of ``shape`` and ``dtype`` and nothing else: a call gives the next (batch_size,
    *shape).

    With ``random_shuffle`` every epoch has an order of its own, in which ``shuffle_block_size`` neighbours stay
    together (0: none do).
    """

    def __init__(
        self,
        files: Sequence[str | os.PathLike[str]],
        shape: Sequence[int],
        dtype: torch.dtype,
        batch_size: int,
        random_shuffle: bool = True,
        shuffle_block_size: int = 0,
        random_seed: int | None = None,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        _refuse_global("RawReader", None, placement, sbp)
        positive("RawReader", batch_size=batch_size)
        at_least(0, "RawReader", shuffle_block_size=shuffle_block_size)
        if isinstance(files, (str, os.PathLike)) or not files:
            raise ArgumentError(f"RawReader: files is a list of at least one path, got {files!r}")
        row = row_spec("RawReader", list(shape), dtype)
        self._rows = RawRows(
            list(files), row, batch_size, bool(random_shuffle), shuffle_block_size, _seed("RawReader", random_seed)
        )

    def forward(self) -> Tensor:
        return read(self, self._next)

    def _next(self) -> Tensor:
        return self.own_rows(self._rows.next())

    def state(self) -> dict[str, Any]:
        """Where it stands: a few numbers, fit for JSON."""
        return self._rows.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on where ``state`` was taken, on the same files and with the same order."""
        self._rows.load_state(state)


class GPTIndexedBinDataReader(Source, Module):
    """A reader of tokens for language models from ``<data_file_prefix>.bin`` and ``.idx`` (Megatron's memory-mapped
    kind).

    A call gives the next (batch_size, seq_length + 1) of ``dtype``. Samples are cut from the documents in a row, one
    token shared between neighbours; after ``num_samples`` they begin again. ``shuffle`` mixes documents in each epoch,
    and samples. ``split_sizes`` are shares of the documents, of which ``split_index`` says the one to read. ``close``
    ends the threads that read ahead.
    """

    def __init__(
        self,
        data_file_prefix: str | os.PathLike[str],
        seq_length: int,
        num_samples: int,
        batch_size: int,
        dtype: torch.dtype = torch.int64,
        shuffle: bool = True,
        random_seed: int | None = None,
        split_sizes: Sequence[str | float] | None = None,
        split_index: int | None = None,
        device: torch.device | str | None = None,
        placement: Any = None,
        sbp: Any = None,
    ) -> None:
        super().__init__()
        what = "GPTIndexedBinDataReader"
        _refuse_global(what, device, placement, sbp)
        positive(what, seq_length=seq_length, num_samples=num_samples, batch_size=batch_size)
        tokens = open_indexed(data_file_prefix)
        documents = (
            range(len(tokens.lengths))
            if split_sizes is None
            else _split(what, len(tokens.lengths), split_sizes, split_index)
        )
        seed = _seed(what, random_seed)
        source = TokenSamples(tokens, documents, seq_length, num_samples, bool(shuffle), seed)
        into = row_spec(what, [seq_length + 1], dtype).dtype.require_numpy()
        order = "shuffle" if shuffle else "sequential"
        self._loader = Loader(
            source, batch_size, lambda sample, draws: sample.astype(into), order=order, seed=seed, threads=1
        )

    def forward(self) -> Tensor:
        return read(self, self._next)

    def _next(self) -> Tensor:
        return self.own_rows(next(iter(self._loader)))

    def state(self) -> dict[str, Any]:
        """Where it stands, as ``flow.data.Loader`` says it."""
        return self._loader.state()

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on where ``state`` was taken, on the same files and with the same order."""
        self._loader.load_state(state)

    def close(self) -> None:
        """Ends the threads; they also end when the reader is forgotten. A call afterwards goes on where it was."""
        self._loader.close()


def _split(what: str, count: int, sizes: Sequence[str | float], index: int | None) -> range:
    try:
        shares = tuple(float(size) for size in sizes)
    except (TypeError, ValueError):
        raise ArgumentError(f"{what}: split_sizes is a list of numbers, got {sizes!r}") from None
    if not shares or type(index) is not int:
        raise ArgumentError(
            f"{what}: split_sizes is a list of numbers and split_index the place of one of them, got {sizes!r} and "
            f"{index!r}"
        )
    return split_documents(count, shares, index)


OfrecordReader = OFRecordReader
OfrecordRawDecoder = OFRecordRawDecoder
