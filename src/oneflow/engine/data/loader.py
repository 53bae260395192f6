"""Loader: batches of samples, read and decoded by threads ahead of whoever takes them.

What a batch holds is a pure function of the arguments and its number: threads only decide when it is ready. So a run
can be stopped anywhere and continued from a few numbers, by other threads and on another count of ranks.

Decoders release the interpreter lock, so threads fill the cores without processes and copies between them. A batch's
memory is there before its first sample; each thread decodes, crops, resizes and normalises a picture straight into its
row.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.region import span
from oneflow.engine.data import order as orders
from oneflow.engine.data.collate import Batch, Collation
from oneflow.engine.data.dataset import Parts, expand
from oneflow.engine.data.workers import Workers

_VERSION = 1
_ORDERS = ("sequential", "shuffle", "buffer", "oneflow")
_MOVING = ("epoch", "sample", "errors", "bad_records")  # what changes in the state while a loader runs
_LOG = logging.getLogger("oneflow.data")


@dataclass
class _Batch:
    """A batch in the making: the samples of this rank, and where the run stands when it has been handed out."""

    data: Batch
    first: int
    records: Sequence[int]
    end: int
    stopping: Event
    work: list[Future[None]] = field(default_factory=list)
    failed: list[tuple[int, int, int, DataError]] = field(default_factory=list)  # row, attempt, record, what was wrong


class Loader:
    """Iterates over batches of tensors made from records or other samples.

    ``source`` is a folder of part files, a file or a list of files (OFRecord or TFRecord), ``oneflow.data.Parts``, or
    any sequence that can be asked from several threads. ``decoders`` says what a batch is made of: a dict of decoders
    gives dicts of tensors, a list gives tuples, one decoder gives a tensor; a function of ``(sample, draws)`` is called
    for each sample, and the arrays, or structures of arrays, that it returns are stacked. ``draws.stream()`` is its
    source of random numbers.

    ``order`` is "sequential"; "shuffle", every epoch in a random order of its own; "buffer", the same mixed in a buffer
    of ``shuffle_buffer_size`` records only, as TensorFlow does; or "oneflow", OneFlow's shuffle of parts after each
    epoch (``shuffle_after_epoch``) and of records in a buffer that goes on over epochs (``shuffle_buffer_size``, 0 for
    none). All are functions of ``seed`` and the files alone: ``world`` ranks of ``batch_size`` read in each step what
    one rank of ``world * batch_size`` would. ``whole_batch`` is what all ranks read in a step where ``world`` does not
    divide it: the first ranks then have one sample more. ``shard="parts"`` gives each rank its own part files instead,
    as OneFlow did; then the state belongs to one rank.

    With ``epochs=None`` batches come without end and may straddle two epochs. Otherwise one pass is that many epochs,
    the next pass goes on with the ones that follow, and each epoch ends with a short batch, or with ``drop_last`` the
    last full one; a rank for which nothing is left of the short one goes without.

    A sample that cannot be read is a ``DataError`` that names file, record and byte. With ``on_error="skip"`` the next
    record of the files takes its place, it is logged and counted in ``errors``, once in all epochs, and more than
    ``max_errors`` are an error.

    ``threads`` work ahead by ``prefetch`` batches. ``close()``, the end of a ``with`` block or of the program ends
    them.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int,
        decoders: Any,
        *,
        order: str = "sequential",
        seed: int = 0,
        epochs: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world: int = 1,
        shard: str = "samples",
        threads: int | None = None,
        prefetch: int = 2,
        on_error: str = "raise",
        max_errors: int = 100,
        pin_memory: bool | None = None,
        shuffle_buffer_size: int = 1024,
        shuffle_after_epoch: bool = True,
        whole_batch: int | None = None,
    ) -> None:
        _check_counts(batch_size=batch_size, world=world, prefetch=prefetch)
        _check_choices(order, shard, on_error)
        if threads is None:
            threads = available_cores()
        _check_counts(threads=threads, **({} if epochs is None else {"epochs": epochs}))
        _check_counts(0, rank=rank, max_errors=max_errors, shuffle_buffer_size=shuffle_buffer_size)
        if rank >= world:
            raise ArgumentError(f"rank is from 0 to world - 1, got rank {rank} of {world}")
        if type(seed) is not int:
            raise ArgumentError(f"seed is an int, got {seed!r}")
        self.batch_size = batch_size
        self.last_error: DataError | None = None
        self._skip = on_error == "skip"
        self._max_errors = max_errors
        self._bad: set[int] = set()  # the records that were passed over
        self._source = _opened(source, tolerant=self._skip)
        self._count = len(self._source)
        if self._count == 0:
            raise DataError(f"the source {source!r} has no samples")
        self._seed, self._epochs, self._drop_last = seed, epochs, drop_last
        self._rank, self._world, self._by_parts = rank, world, shard == "parts" and world > 1
        self._share = 1 if self._by_parts else world
        self._step = (
            batch_size * self._share if whole_batch is None else whole_batch
        )  # samples that all ranks read in a step
        if epochs is not None and drop_last and self._count < self._step:
            raise ArgumentError(
                f"an epoch of {self._count} samples has no full batch of {self._share} x {batch_size}; drop_last "
                f"leaves nothing"
            )
        self._order = self._make_order(order, shuffle_buffer_size, shuffle_after_epoch)
        self._kind: dict[str, Any] = {"order": order, "shard": f"parts {rank}/{world}" if self._by_parts else "samples"}
        if order in ("buffer", "oneflow"):
            self._kind["shuffle_buffer_size"] = shuffle_buffer_size
        if order == "oneflow":
            self._kind["shuffle_after_epoch"] = shuffle_after_epoch
        self._layout = Collation(decoders, _pinned(pin_memory), prefetch + 1)
        self._threads, self._prefetch = threads, prefetch
        self._chunk = max(1, batch_size // (4 * threads))
        self._workers: Workers | None = None
        self._ahead: deque[_Batch] = deque()
        self._given = self._planned = 0  # samples of the run, over all ranks: handed out, and given to the threads
        self._damages = 0  # of files, where no record can be named
        for damage in getattr(self._source, "damages", []):
            self._damages += 1
            self._note(damage)
            self._check_errors(damage)

    def _make_order(self, name: str, buffer: int, shuffle_parts: bool) -> orders.Order:
        if self._by_parts and name != "oneflow":
            raise ArgumentError(f"shard='parts' goes with order='oneflow', got order={name!r}")
        if self._by_parts and self._epochs is not None:
            raise ArgumentError(
                "shard='parts' goes with epochs=None: ranks of unequal parts end their epochs at different times"
            )
        if name == "shuffle":
            return orders.Shuffled(self._count, self._seed)
        if name == "buffer":
            return orders.Shuffled(self._count, self._seed, buffer)
        if name == "sequential":
            return orders.Sequential(self._count)
        counts = getattr(self._source, "counts", None) or [self._count]
        rank, world = (self._rank, self._world) if self._by_parts else (0, 1)
        return orders.OneFlow(counts, buffer, shuffle_parts, self._seed, rank, world)

    def __len__(self) -> int:
        """The number of batches of a whole pass; an endless loader has none."""
        if self._epochs is None:
            raise TypeError("a loader with epochs=None has no end and so no length")
        full, rest = divmod(self._count, self._step)
        last = rest and not self._drop_last and self._cut(0, rest)[1] > self._cut(0, rest)[0]
        return self._epochs * (full + bool(last))

    @property
    def errors(self) -> int:
        """How many records, and damaged ends of files, were left out so far."""
        return self._damages + len(self._bad)

    @property
    def source(self) -> Any:
        """The samples, as opened."""
        return self._source

    def __iter__(self) -> Iterator[Any]:
        """The rest of the present pass."""
        end = self._end_of_pass()
        while (batch := self._next(end)) is not None:
            yield batch

    def start(self) -> None:
        """Sets the threads to work before the first batch is asked for."""
        self._fill(self._end_of_pass())

    def _end_of_pass(self) -> int | None:
        if self._epochs is None:
            return None
        length = self._epochs * self._count
        return (self._given // length + 1) * length

    # -------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """A few numbers and names, fit for JSON: where the run stands after the batches handed out so far."""
        epoch, sample = divmod(self._given, self._count)
        return {
            "version": _VERSION,
            "seed": self._seed,
            "epoch": epoch,
            "sample": sample,
            "errors": self.errors,
            "bad_records": sorted(self._bad),
            "fingerprint": self._fingerprint(),
            **self._kind,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on where ``state`` was taken. Files, seed and order must be those of then; ranks and threads need
        not."""
        mine = self.state()
        if not _is_position(state):
            raise DataError(f"{state!r:.200} is not a position of a loader, as state() gives it")
        fixed = [key for key in mine if key not in _MOVING]
        wrong = next((key for key in fixed if state.get(key) != mine[key]), None)
        if wrong is not None:
            raise DataError(
                f"the saved position has {wrong} {state.get(wrong)!r}, this loader {mine[wrong]!r}; "
                "go on with the same part files and shuffle arguments, or start without the saved position"
            )
        self._stop_work()
        self._given = self._planned = state["epoch"] * self._count + state["sample"]
        self._bad = set(state.get("bad_records", []))

    def _fingerprint(self) -> str:
        known = self._source.fingerprint() if hasattr(self._source, "fingerprint") else {}
        digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16]
        return f"{self._count} samples, {digest}"

    # -------------------------------------------------------------- running ahead

    def _next(self, end: int | None) -> Any:
        """The next batch, or None at the end of the pass."""
        self._fill(end)
        if not self._ahead:
            self._given = self._planned
            return None
        batch = self._ahead[0]
        try:
            wait(batch.work)  # wakes up once, where asking each for its result would wake up and take the lock for each
            for work in batch.work:
                work.result()
            self._settle(batch)
        except BaseException:
            self._stop_work()
            raise
        self._ahead.popleft()
        self._given = self._start_of_next(batch.end)
        packed = self._layout.packed(batch.data)
        del batch
        self._fill(end)
        return packed

    def _fill(self, end: int | None) -> None:
        """Keeps ``prefetch`` batches in work besides the one that is next."""
        while len(self._ahead) <= self._prefetch and (end is None or self._planned < end):
            first, stop = self._planned, self._end_of_batch(self._planned)
            self._planned = self._start_of_next(stop)
            mine = self._cut(first, stop)
            if mine[0] < mine[1]:
                self._begin(mine, stop)

    def _end_of_batch(self, first: int) -> int:
        stop = first + self._step
        return stop if self._epochs is None else min(stop, (first // self._count + 1) * self._count)

    def _start_of_next(self, stop: int) -> int:
        """Where the batch behind ``stop`` begins: the rest of an epoch that fills no batch is passed over."""
        left = self._count - stop % self._count
        short = self._epochs is not None and self._drop_last and left < self._step
        return stop + left if short else stop

    def _cut(self, first: int, stop: int) -> tuple[int, int]:
        """This rank's samples of those that all ranks read in a step."""
        size, rank = stop - first, 0 if self._by_parts else self._rank
        start, end = span(size, self._share, rank)
        return first + start, first + end

    def _begin(self, mine: tuple[int, int], end: int) -> None:
        rows = mine[1] - mine[0]
        if self._workers is None:
            self._workers = Workers(self._threads, "oneflow-loader")
        batch = _Batch(self._layout.batch(rows), mine[0], self._order.records(*mine), end, self._workers.stopping)
        batch.work = [
            self._workers.submit(self._read, batch, row, min(row + self._chunk, rows))
            for row in range(0, rows, self._chunk)
        ]
        self._ahead.append(batch)

    def _read(self, batch: _Batch, start: int, stop: int) -> None:
        """Some rows of a batch, in a thread."""
        for row in range(start, stop):
            if batch.stopping.is_set():
                raise CancelledError
            epoch, position = divmod(self._unique(batch.first + row), self._count)
            self._read_row(batch, row, orders.Draws(self._seed, epoch, position))

    def _unique(self, number: int) -> int:
        """Ranks with parts of their own count from 0 each; their random numbers must differ all the same."""
        return number * self._world + self._rank if self._by_parts else number

    def _read_row(self, batch: _Batch, row: int, draws: orders.Draws) -> None:
        for attempt in range(self._count):
            record = (batch.records[row] + attempt) % self._count
            try:
                batch.data.write(row, self._source[record], draws)
                return
            except DataError as error:
                if not self._skip:
                    raise
                batch.failed.append((row, attempt, record, error))
                if attempt >= self._max_errors:
                    return
            except Exception as error:
                error.add_note(f"sample {record} of {self._source!r}")
                raise
        raise DataError("not one sample of the source can be read")

    # -------------------------------------------------------------- errors and the end

    def _settle(self, batch: _Batch) -> None:
        """Counts the samples of a batch that were passed over, in the order of their rows."""
        for _, _, record, error in sorted(batch.failed, key=lambda failure: failure[:2]):
            if record not in self._bad:
                self._bad.add(record)
                self._note(error)
            self._check_errors(error)  # also of a known one: a batch that was given up before must not pass now

    def _note(self, error: DataError) -> None:
        self.last_error = error
        _LOG.warning("left out (%d so far, %d at most): %s", self.errors, self._max_errors, error)

    def _check_errors(self, error: DataError) -> None:
        if self.errors > self._max_errors:
            raise DataError(
                f"{self.errors} samples could not be read, more than max_errors={self._max_errors}; the last: {error}"
            )

    def _stop_work(self) -> None:
        """Forgets the batches in work; samples that a thread has begun are waited for."""
        if self._workers is not None:
            self._workers.close()
        self._workers = None
        self._ahead.clear()
        self._planned = self._given

    def close(self) -> None:
        """Ends the threads and closes the files. Going on afterwards starts them again."""
        self._stop_work()
        if hasattr(self._source, "close"):
            self._source.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Loader of batches of {self.batch_size} from {self._source!r}>"


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _opened(source: Any, tolerant: bool) -> Any:
    if isinstance(source, (str, os.PathLike)):
        return Parts(expand(source), tolerant=tolerant)
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        return Parts(source, tolerant=tolerant)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return source
    raise ArgumentError(f"a source is a folder, files, or a sequence of samples; got {source!r}")


def _is_position(state: Any) -> bool:
    if not isinstance(state, dict):
        return False
    bad = state.get("bad_records", [])  # states of the first version have none
    numbers = [*(state.get(key) for key in ("epoch", "sample", "errors")), *(bad if isinstance(bad, list) else [None])]
    return all(type(number) is int and number >= 0 for number in numbers)


def _pinned(asked: bool | None) -> bool:
    if asked and not torch.cuda.is_available():
        raise ArgumentError("pin_memory=True needs a GPU and there is none; leave it None to pin memory where a GPU is")
    return torch.cuda.is_available() if asked is None else bool(asked)


def _check_counts(least: int = 1, **counts: Any) -> None:
    for name, value in counts.items():
        if type(value) is not int or value < least:
            raise ArgumentError(f"{name} is an int of at least {least}, got {value!r}")


def _check_choices(order: str, shard: str, on_error: str) -> None:
    for name, value, choices in (
        ("order", order, _ORDERS),
        ("shard", shard, ("samples", "parts")),
        ("on_error", on_error, ("raise", "skip")),
    ):
        if value not in choices:
            raise ArgumentError(f"{name} is one of {', '.join(map(repr, choices))}; got {value!r}")
