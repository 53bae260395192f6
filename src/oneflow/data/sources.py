"""Data inside a job: record readers, their decoders, and random batches.

Each of these is fed from the host. Tracing makes a placeholder of it; at every step its source gives the tensors.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.core.dtype import DType, as_dtype
from oneflow.core.errors import ArgumentError, DataError, JobError, UnsupportedError, user_line
from oneflow.core.spec import TensorSpec, spec_of
from oneflow.data.decode import RawDecoder
from oneflow.data.order import part_names
from oneflow.data.reader import RecordReader
from oneflow.initializer import random_uniform_initializer
from oneflow.ir.blob import Blob
from oneflow.ir.graph import Graph
from oneflow.ir.trace import require_trace


class RecordSource:
    """What some decoders make of a reader's batches. Sources of one reader share each batch by its number."""

    def __init__(self, reader: RecordReader, decoders: Sequence[RawDecoder]) -> None:
        self.specs = tuple(decoder.spec(reader.batch_size) for decoder in decoders)
        self._reader = reader
        self._decoders = decoders
        self._step = 0

    def next(self) -> tuple[torch.Tensor, ...]:
        records = self._reader.batch(self._step)
        tensors = tuple(torch.from_numpy(decoder.decode(records)) for decoder in self._decoders)
        self._step += 1
        return tensors

    def state(self) -> dict[str, Any]:
        return {"step": self._step, "reader": self._reader.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._reader.load_state(state["reader"])
        self._step = state["step"]


class RandomSource:
    """One batch, drawn when it is first asked for and the same at every step."""

    def __init__(self, spec: TensorSpec, initializer: Any, seed: int) -> None:
        self.specs: tuple[TensorSpec, ...] = (spec,)
        self._initializer = initializer
        self._seed = seed
        self._batch: torch.Tensor | None = None

    def next(self) -> tuple[torch.Tensor, ...]:
        if self._batch is None:
            self._batch = self._draw()
        return (self._batch,)

    def _draw(self) -> torch.Tensor:
        (spec,) = self.specs
        generator = torch.Generator().manual_seed(self._seed)
        batch = self._initializer.draw(spec, generator)
        if spec_of(batch) != spec:
            raise DataError(f"decode_random wanted {spec}, the initializer {self._initializer!r} drew {spec_of(batch)}")
        return batch

    def state(self) -> dict[str, Any]:
        return {"seed": self._seed}

    def load_state(self, state: dict[str, Any]) -> None:
        """The batch is a function of the seed, so that is all there is to restore."""
        if state["seed"] != self._seed:
            self._seed, self._batch = state["seed"], None


class Records:
    """What ``ofrecord_reader`` gives: a batch of undecoded records. It has no tensor; decoders take it."""

    def __init__(self, reader: RecordReader, graph: Graph, name: str) -> None:
        self.reader = reader
        self.graph = graph
        self.op_name = name

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.reader.batch_size,)

    def __repr__(self) -> str:
        return f"<Records {self.op_name!r}, {self.reader.batch_size} a batch from {len(self.reader.paths)} part files>"


@dataclass(frozen=True)
class RawCodec:
    """Numbers as they are. ``auto_zero_padding``: a feature with fewer values than the shape is filled up with zeros."""

    auto_zero_padding: bool = False


class BlobConf:
    """One blob of ``decode_ofrecord``: the feature ``name`` of every record, its shape without the batch, dtype and codec."""

    def __init__(self, name: str, shape: Sequence[int], dtype: DType, codec: RawCodec, preprocessors: Sequence[Any] | None = None) -> None:
        self.name = name
        self.shape = _row_shape("BlobConf", shape)
        self.dtype = as_dtype(dtype)
        self.codec = codec
        self.preprocessors = tuple(preprocessors or ())


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
) -> Records:
    """A reader of OFRecord part files that every call of the job moves on by one batch.

    The parts are ``<prefix><index>``, the index padded with zeros to ``part_name_suffix_length``. They are read one after
    the other without end, a batch may straddle two rounds. ``random_shuffle`` mixes records in a buffer of
    ``shuffle_buffer_size``; ``shuffle_after_epoch`` reads the parts in a new order in each round after the first. The order is
    a function of ``seed`` and the files. Give the result to a decoder such as ``OFRecordRawDecoder``.
    """
    trace = require_trace("flow.data.ofrecord_reader")
    full = trace.claim(name, "OFRecordReader")
    _positive("ofrecord_reader", shuffle_buffer_size=shuffle_buffer_size)
    reader = _reader(
        "ofrecord_reader", ofrecord_dir, batch_size, data_part_num, part_name_prefix, part_name_suffix_length,
        shuffle_buffer_size if random_shuffle else 0, shuffle_after_epoch, seed,
    )  # fmt: skip
    return Records(reader, trace.graph, full)


def ofrecord_raw_decoder(
    input_blob: Records,
    blob_name: str,
    shape: Sequence[int],
    dtype: DType,
    dim1_varying_length: bool = False,
    auto_zero_padding: bool = False,
    name: str | None = None,
) -> Blob:
    """Feature ``blob_name`` of each record as numbers: a blob of shape ``(batch, *shape)``.

    Number lists must have as many values as ``shape``; with ``auto_zero_padding`` fewer are filled up with zeros. A bytes
    feature is one entry whose bytes are signed numbers, unsigned where ``dtype`` is uint8. A record without the feature, or
    with numbers that ``dtype`` cannot hold, is a ``DataError`` naming file and record.
    """
    trace = require_trace("flow.data.OFRecordRawDecoder")
    if not isinstance(input_blob, Records):
        raise ArgumentError(f"{user_line()}: OFRecordRawDecoder takes what flow.data.ofrecord_reader gave, got {input_blob!r}")
    if input_blob.graph is not trace.graph:
        raise JobError(f"{user_line()}: OFRecordRawDecoder was given {input_blob!r}, which belongs to another job")
    if dim1_varying_length:
        raise UnsupportedError(f"{user_line()}: dim1_varying_length=True is not supported; use auto_zero_padding=True and a largest shape")
    decoder = RawDecoder(blob_name, _row("OFRecordRawDecoder", shape, dtype), bool(auto_zero_padding))
    (node,) = trace.add_source(RecordSource(input_blob.reader, (decoder,)), trace.claim(name, "OFRecordRawDecoder"))
    return Blob(node)


OFRecordRawDecoder = ofrecord_raw_decoder


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
) -> tuple[Blob, ...]:
    """Reader and decoders in one: a blob of shape ``(batch_size, *conf.shape)`` for each BlobConf, in their order.

    Files and order are as in ``ofrecord_reader``; ``shuffle`` mixes the records in a buffer of ``buffer_size``.
    """
    trace = require_trace("flow.data.decode_ofrecord")
    if not isinstance(blobs, (list, tuple)) or not blobs or not all(isinstance(blob, BlobConf) for blob in blobs):
        raise ArgumentError(f"{user_line()}: decode_ofrecord takes a list or tuple of flow.data.BlobConf, got {blobs!r}")
    _positive("decode_ofrecord", buffer_size=buffer_size)
    decoders = [_decoder(blob) for blob in blobs]
    reader = _reader(
        "decode_ofrecord", ofrecord_dir, batch_size, data_part_num, part_name_prefix, part_name_suffix_length,
        buffer_size if shuffle else 0, False, seed,
    )  # fmt: skip
    nodes = trace.add_source(RecordSource(reader, decoders), trace.claim(name, "DecodeOFRecord"))
    return tuple(map(Blob, nodes))


def decode_random(
    shape: Sequence[int],
    dtype: DType,
    batch_size: int = 1,
    initializer: Any = None,
    tick: Any = None,
    name: str | None = None,
) -> Blob:
    """A blob of shape ``(batch_size, *shape)`` that is drawn once and is the same at every call of the job.

    ``initializer`` defaults to uniform numbers from 0 to 1. What is drawn depends on the op's name alone.
    """
    trace = require_trace("flow.data.decode_random")
    if tick is not None:
        raise UnsupportedError(f"{user_line()}: decode_random takes no tick; it is drawn before the first step")
    if initializer is not None and not hasattr(initializer, "draw"):
        raise ArgumentError(f"{user_line()}: {initializer!r} is not an initializer; use one of flow.*_initializer")
    _positive("decode_random", batch_size=batch_size)
    full = trace.claim(name, "DecodeRandom")
    spec = TensorSpec((batch_size, *_row_shape("decode_random", shape)), as_dtype(dtype))
    initializer = random_uniform_initializer(dtype=spec.dtype) if initializer is None else initializer
    (node,) = trace.add_source(RandomSource(spec, initializer, zlib.crc32(full.encode())), full)
    return Blob(node)


def _reader(
    what: str, folder: Any, batch_size: int, parts: int, prefix: str, suffix_length: int, buffer: int, shuffle_after_epoch: bool, seed: int
) -> RecordReader:
    _positive(what, batch_size=batch_size, data_part_num=parts)
    try:
        paths = [os.path.join(os.fspath(folder), part) for part in part_names(prefix, parts, suffix_length)]
        return RecordReader(paths, batch_size, buffer, bool(shuffle_after_epoch), seed)
    except (ArgumentError, DataError) as error:
        raise type(error)(f"{user_line()}: {what}: {error}") from None


def _decoder(blob: BlobConf) -> RawDecoder:
    if not isinstance(blob.codec, RawCodec):
        raise UnsupportedError(f"{user_line()}: blob {blob.name!r}: decode_ofrecord decodes flow.data.RawCodec, got {blob.codec!r}")
    if blob.preprocessors:
        raise UnsupportedError(f"{user_line()}: blob {blob.name!r}: a RawCodec blob takes no preprocessors; compute on the blob instead")
    return RawDecoder(blob.name, _row("decode_ofrecord", blob.shape, blob.dtype), blob.codec.auto_zero_padding)


def _row(what: str, shape: Sequence[int], dtype: Any) -> TensorSpec:
    spec = TensorSpec(_row_shape(what, shape), as_dtype(dtype))
    if spec.dtype.numpy is None:
        raise UnsupportedError(f"{user_line()}: {what} cannot decode to {spec.dtype.name}; decode to float32 and cast")
    return spec


def _row_shape(what: str, shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, (list, tuple)) or not all(type(n) is int and n > 0 for n in shape):
        raise ArgumentError(f"{user_line()}: {what} takes a shape without the batch, a list or tuple of ints > 0 or (); got {shape!r}")
    return tuple(shape)


def _positive(what: str, **sizes: Any) -> None:
    for name, value in sizes.items():
        if type(value) is not int or value < 1:
            raise ArgumentError(f"{user_line()}: {what}: {name} is an int of at least 1, got {value!r}")
