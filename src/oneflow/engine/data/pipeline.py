"""Records inside a job: one loader per reader, which works ahead of the steps (prefetching); and what stands for its
batches while a job is traced.

Everything here that has no fixed shape (records, pictures as they are) exists only as a handle that says how to make
it. Ops on handles add to that; the op that ends in a blob adds a decoder to the reader's loader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError, JobError
from oneflow.engine.core.region import span
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.data.dataset import Parts
from oneflow.engine.data.decode import Coin, CoinDecoder, Decoder, RandomCrop, Size
from oneflow.engine.data.loader import Loader
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.nodes import attribute
from oneflow.engine.ir.notes import change_op_note, op_note
from oneflow.engine.ir.trace import Trace, require_trace
from oneflow.engine.ops import sample as rows


@dataclass(frozen=True)
class Reading:
    """How a reader goes through its files."""

    batch_size: int
    buffer_size: int = 0
    shuffle_parts: bool = False
    seed: int = 0
    on_error: str = "raise"
    max_errors: int = 100


class RecordPipeline:
    """A reader of a job. Its decoders are collected while the job is traced; threads start with the first batch."""

    def __init__(self, name: str, paths: Sequence[str], reading: Reading) -> None:
        self.name = name
        self.batch_size = reading.batch_size
        self.parts = Parts(paths, tolerant=reading.on_error == "skip")
        self.number = 0  # of the batch at hand, from 1 on
        self._reading = reading
        self._share, self._shares = 0, 1
        self._decoders: list[Decoder | None] = []
        self._loader: Loader | None = None
        self._batch: dict[int, torch.Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without open files: whoever takes it opens the parts anew."""
        assert self._loader is None, f"reader {self.name!r} reads already"
        return {**self.__dict__, "parts": self.parts.paths}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.parts = Parts(state["parts"], tolerant=self._reading.on_error == "skip")

    def share(self, number: int, shares: int) -> None:
        """Makes it read the rows of one share of each batch."""
        self._share, self._shares = number, shares

    def add(self, decoder: Decoder) -> int:
        """Makes each batch also hold what ``decoder`` makes of the records; gives its number."""
        if self._loader is not None:
            raise JobError(f"reader {self.name!r} reads already")
        self._decoders.append(decoder)
        return len(self._decoders) - 1

    def drop(self, number: int) -> None:
        """Takes a decoder out again."""
        self._decoders[number] = None

    def start(self) -> None:
        """Sets the threads to work."""
        self._made().start()

    def advance(self) -> None:
        """Goes to the next batch."""
        if self._batch is not None:
            self._batch = None  # before the next is asked for, so that its memory can be used again
        self._batch = next(iter(self._made()))
        self.number += 1

    def tensor(self, decoder: int) -> torch.Tensor:
        """A decoder's part of the batch at hand."""
        assert self._batch is not None
        return self._batch[decoder]

    def state(self) -> dict[str, Any]:
        return self._made().state()

    def load_state(self, state: dict[str, Any]) -> None:
        self._made().load_state(state)

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
        self.parts.close()

    def _made(self) -> Loader:
        if self._loader is None:
            how = self._reading
            decoders = {number: decoder for number, decoder in enumerate(self._decoders) if decoder is not None}
            self._loader = Loader(
                self.parts, span(how.batch_size, self._shares, 0)[1], decoders, rank=self._share, world=self._shares, whole_batch=how.batch_size,
                order="oneflow", seed=how.seed, shuffle_buffer_size=how.buffer_size, shuffle_after_epoch=how.shuffle_parts,
                on_error=how.on_error, max_errors=how.max_errors,
            )  # fmt: skip
        return self._loader


class RecordSource:
    """What some decoders make of a reader's batches. The sources of one reader go through its batches together."""

    def __init__(self, pipeline: RecordPipeline, decoders: Sequence[Decoder]) -> None:
        self.name = pipeline.name
        self.specs = tuple(TensorSpec((pipeline.batch_size, *d.row.shape), d.row.dtype) for d in decoders)
        self._pipeline = pipeline
        self._numbers = [pipeline.add(decoder) for decoder in decoders]
        self._seen = 0

    def share(self, number: int, shares: int) -> None:
        self._pipeline.share(number, shares)

    def start(self) -> None:
        self._pipeline.start()

    def next(self) -> tuple[torch.Tensor, ...]:
        """The first source to ask for a batch takes the reader on to it; the others find it there."""
        if self._seen == self._pipeline.number:
            self._pipeline.advance()
        self._seen = self._pipeline.number
        return tuple(self._pipeline.tensor(number) for number in self._numbers)

    def drop(self) -> None:
        for number in self._numbers:
            self._pipeline.drop(number)

    def state(self) -> dict[str, Any]:
        return self._pipeline.state()

    def load_state(self, state: dict[str, Any]) -> None:
        self._pipeline.load_state(state)

    def close(self) -> None:
        self._pipeline.close()


# ------------------------------------------------------------------ handles


@dataclass(frozen=True, repr=False)
class Handle:
    """A batch that only the reader's threads see."""

    pipeline: RecordPipeline
    graph: Graph
    op_name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.pipeline.batch_size,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.op_name!r}, {self.pipeline.batch_size} a batch from {len(self.pipeline.parts.paths)} part files>"


class Records(Handle):
    """What ``ofrecord_reader`` gives: undecoded records. Decoders take it."""


@dataclass(frozen=True, repr=False)
class Buffers(Handle):
    """The bytes of one feature of each record. ``flow.image.decode`` takes it."""

    key: str


@dataclass(frozen=True, repr=False)
class Images(Handle):
    """Pictures of their own sizes: decoded, cropped, perhaps resized. Ops of ``flow.image`` take it.

    ``size`` is what they are resized to: fixed, a function of a picture's width and height, or None.
    """

    key: str
    color: str
    crop: RandomCrop | None = None
    size: Size | Callable[[int, int], Size] | None = None
    method: str = "auto"

    def renamed(self, name: str, **changes: Any) -> Images:
        return replace(self, op_name=name, **changes)


def take(what: str, value: Any, kind: type[Handle] | tuple[type[Handle], ...], expected: str) -> Trace:
    """The running trace; anything but a handle of ``kind`` that belongs to it is an error."""
    trace = require_trace(what)
    if not isinstance(value, kind):
        raise ArgumentError(f"{what} takes {expected}, got {value!r}")
    if value.graph is not trace.graph:
        raise JobError(f"{what} was given {value!r}, which belongs to another job")
    return trace


def decoded(trace: Trace, pipeline: RecordPipeline, decoder: Decoder, name: str) -> Blob:
    """The blob of a new decoder."""
    (node,) = trace.add_source(RecordSource(pipeline, (decoder,)), name)
    return Blob(node)


def coin_of(trace: Trace, pipeline: RecordPipeline, mirror: Blob) -> Coin | None:
    """The coin behind ``mirror``, if the reader's threads can toss it themselves.

    A ``coin_flip`` becomes a part of the reader's batches, a function of each sample's place in the data as crops are;
    whoever else reads the blob sees the same flips. Any other blob is computed by the job, so the job must mirror by
    it.
    """
    node = mirror.node
    known: tuple[RecordPipeline, Coin] | None = op_note(node).coin
    if known is not None:
        return known[1] if known[0] is pipeline else None
    if (
        node.op != "call_function"
        or node.target is not rows.coin_flip
        or any(watch.node is node for watch in trace.graph.watches)
    ):
        return None
    if mirror.shape != (pipeline.batch_size,):
        return None
    coin = Coin(float(attribute(node, "probability")), int(attribute(node, "seed")))
    moved = decoded(trace, pipeline, CoinDecoder(coin), op_note(node).name).node
    change_op_note(moved, coin=(pipeline, coin))
    node.replace_all_uses_with(moved)
    trace.graph.body.erase_node(node)
    mirror.node = moved
    return coin
