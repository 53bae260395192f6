"""What happens in a run: scalars by name and iteration, and the writers that show and keep them."""

from __future__ import annotations

import datetime
import json
import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from libai.utils.history_buffer import HistoryBuffer
from libai.utils.memory import peak_memory_mb
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.optional import optional_package

__all__ = [
    "CommonMetricPrinter",
    "EventStorage",
    "EventWriter",
    "JSONWriter",
    "TensorboardXWriter",
    "get_event_storage",
]

_PACE_SECONDS = 1.0
_STACK: list[EventStorage] = []  # the storages whose ``with`` is open: training may evaluate inside one


def get_event_storage() -> EventStorage:
    """The storage whose ``with`` block this is called in."""
    if not _STACK:
        raise ArgumentError("get_event_storage() has to be called inside a 'with EventStorage(...)' context!")
    return _STACK[-1]


class EventStorage:
    """The scalars of a run. ``iter`` is the current iteration, ``samples`` how many samples were used until now.

    ``with EventStorage(start_iter) as storage:`` makes it the one that ``get_event_storage()`` gives.
    """

    def __init__(self, start_iter: int = 0) -> None:
        self._iter = start_iter
        self._samples = 0
        self._history: defaultdict[str, HistoryBuffer] = defaultdict(HistoryBuffer)
        self._latest: dict[str, tuple[float, int]] = {}
        self._hints: dict[str, bool] = {}
        self._prefix = ""
        self.vis_data: list[tuple[str, Any, int]] = []
        self.histograms: list[tuple[str, Any, int]] = []

    def put_scalar(self, name: str, value: Any, smoothing_hint: bool = True) -> None:
        """Adds the value that a scalar has in this iteration. ``smoothing_hint`` says whether it is shown as a median
        of several; it stays the same for a name."""
        name = self._prefix + name
        value = float(value)
        if self._hints.setdefault(name, smoothing_hint) != smoothing_hint:
            raise ArgumentError(
                f"Scalar {name} was put with a different smoothing_hint! It was {self._hints[name]}, now it is "
                f"{smoothing_hint}"
            )
        self._history[name].update(value, self._iter)
        self._latest[name] = (value, self._iter)

    def put_scalars(self, *, smoothing_hint: bool = True, **kwargs: Any) -> None:
        """``put_scalar`` of each argument."""
        for name, value in kwargs.items():
            self.put_scalar(name, value, smoothing_hint=smoothing_hint)

    def put_image(self, img_name: str, img_tensor: Any) -> None:
        """Keeps a picture (CHW, uint8, or float from 0 to 1) until a writer shows it."""
        self.vis_data.append((self._prefix + img_name, img_tensor, self._iter))

    def put_histogram(self, hist_name: str, hist_tensor: Any) -> None:
        """Keeps values whose distribution a writer shows."""
        self.histograms.append((self._prefix + hist_name, hist_tensor, self._iter))

    def history(self, name: str) -> HistoryBuffer:
        """The values that a scalar has had."""
        if name not in self._history:
            raise KeyError(f"No history metric available for {name}!")
        return self._history[name]

    def histories(self) -> dict[str, HistoryBuffer]:
        """The history of every scalar."""
        return self._history

    def latest(self) -> dict[str, tuple[float, int]]:
        """The last value of every scalar, and its iteration."""
        return self._latest

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, tuple[float, int]]:
        """As ``latest``; scalars to be smoothed are the median of their last ``window_size`` values."""
        return {name: (self.smoothed(name, window_size), at) for name, (_, at) in self._latest.items()}

    def smoothed(self, name: str, window_size: int) -> float:
        """The last value of a scalar, or the median of its last ``window_size`` ones if it is to be smoothed."""
        return self._history[name].median(window_size) if self._hints[name] else self._latest[name][0]

    def smoothing_hints(self) -> dict[str, bool]:
        """Which scalars are to be smoothed."""
        return self._hints

    def step(self) -> None:
        """Goes on to the next iteration."""
        self._iter += 1

    @property
    def iter(self) -> int:
        """The current iteration."""
        return self._iter

    @iter.setter
    def iter(self, val: int) -> None:
        self._iter = int(val)

    @property
    def samples(self) -> int:
        """The samples used until now, on all ranks together."""
        return self._samples

    @samples.setter
    def samples(self, val: int) -> None:
        self._samples = int(val)

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Puts ``name/`` before the names of what is put inside."""
        before, self._prefix = self._prefix, name.rstrip("/") + "/"
        try:
            yield
        finally:
            self._prefix = before

    def clear_images(self) -> None:
        """Forgets the pictures; a writer calls it when it has shown them."""
        self.vis_data = []

    def clear_histograms(self) -> None:
        """Forgets the histograms."""
        self.histograms = []

    def __enter__(self) -> EventStorage:
        _STACK.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if _STACK.pop() is not self:
            raise ArgumentError(
                "EventStorage contexts are left in the order opposite to that in which they were entered"
            )


class EventWriter:
    """Takes from the current storage what is new, at every ``write``."""

    def write(self) -> None:
        """Writes what is new."""
        raise NotImplementedError(f"{type(self).__name__} has to define write()")

    def write_end(self) -> None:
        """Writes what was put after the last iteration, such as the final evaluation."""
        self.write()

    def close(self) -> None:
        """Ends the writing; nothing to do by default."""


class _NewScalars:
    """The scalars that a writer has not seen yet. An evaluation after the last iteration has that iteration's number
    and is new all the same."""

    def __init__(self, window_size: int) -> None:
        self._window_size = window_size
        self._seen: dict[str, int] = {}

    def take(self) -> list[tuple[str, float, int]]:
        storage = get_event_storage()
        new = [
            (name, storage.smoothed(name, self._window_size), at)
            for name, (_, at) in storage.latest().items()
            if at > self._seen.get(name, -1)
        ]
        self._seen.update((name, at) for name, _, at in new)
        return new


class _Pace:
    """Says when something is due that takes milliseconds and need not be done more than once a second, however often a
    run logs."""

    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _PACE_SECONDS
        return True


class JSONWriter(EventWriter):
    """One JSON object for each iteration that has something new, as a line of ``json_file``: the scalars by name, and
    ``iteration``.

    Lines are appended, and in the file when ``write`` returns, whatever becomes of the process; they are forced to the
    disk at most once a second, and by ``close``. A last line that an earlier process did not finish is removed.
    """

    def __init__(self, json_file: str, window_size: int = 20) -> None:
        os.makedirs(os.path.dirname(json_file) or ".", exist_ok=True)
        self._file = open(json_file, "ab+")
        _drop_unfinished_line(self._file)
        self._new = _NewScalars(window_size)
        self._pace = _Pace()

    def write(self) -> None:
        lines: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for name, value, at in self._new.take():
            lines[at][name] = value
        if not lines:
            return
        for at, scalars in sorted(lines.items()):
            self._file.write(json.dumps({**scalars, "iteration": at}, sort_keys=True).encode() + b"\n")
        self._file.flush()
        if self._pace.is_due():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()


class TensorboardXWriter(EventWriter):
    """The scalars, pictures and histograms as a TensorBoard event file in ``log_dir``. Further arguments are those of
    torch's ``SummaryWriter``."""

    def __init__(self, log_dir: str, window_size: int = 20, **kwargs: Any) -> None:
        optional_package("tensorboard", "libai", "TensorboardXWriter")
        from torch.utils.tensorboard import SummaryWriter  # takes a second to load, and only one rank writes

        self._writer = SummaryWriter(log_dir, **kwargs)
        self._new = _NewScalars(window_size)
        self._pace = _Pace()

    def write(self) -> None:
        storage = get_event_storage()
        for name, value, at in self._new.take():
            self._writer.add_scalar(name, value, at)
        for name, picture, at in storage.vis_data:
            self._writer.add_image(name, picture, at)
        for name, values, at in storage.histograms:
            self._writer.add_histogram(name, values, at)
        storage.clear_images()
        storage.clear_histograms()
        if self._pace.is_due():
            self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class CommonMetricPrinter(EventWriter):
    """One line in the log: time left, iteration, samples, losses, speed, learning rate and memory. ``batch_size`` is
    the global one."""

    def __init__(self, batch_size: int, max_iter: int) -> None:
        self.logger = logging.getLogger("libai.utils.events")
        self._batch_size = batch_size
        self._max_iter = max_iter
        self._last_write: tuple[int, float] | None = None

    def write(self) -> None:
        storage = get_event_storage()
        now = storage.iter
        memory = peak_memory_mb()
        storage.put_scalar("max_mem_mb", memory, smoothing_hint=False)
        self.logger.info(
            " {eta}iteration: {now}/{end}  consumed_samples: {samples}  {losses}  {time}{data_time}{throughput}{lr}  max_mem: {memory:.0f}M".format(
                eta=self._eta(storage),
                now=now,
                end=self._max_iter,
                samples=storage.samples,
                losses="  ".join(
                    f"{name}: {history.median(200):.4g}"
                    for name, history in storage.histories().items()
                    if "loss" in name
                ),
                time=f"time: {storage.history('time').global_avg():.4f} s/iter  "
                if "time" in storage.histories()
                else "",
                data_time=f"data_time: {storage.history('data_time').avg(20):.4f} s/iter "
                if "data_time" in storage.histories()
                else "",
                throughput=self._throughput(storage),
                lr=f"lr: {storage.history('lr').latest():.2e}" if "lr" in storage.histories() else "lr: N/A",
                memory=memory,
            )
        )

    def write_end(self) -> None:
        """Writes nothing: a line describes an iteration, and no further one has run."""

    def _throughput(self, storage: EventStorage) -> str:
        if "time" not in storage.histories():
            return ""
        speed = self._batch_size / storage.history("time").global_avg()
        storage.put_scalar("total_throughput", speed, smoothing_hint=False)
        return f"total_throughput: {speed:.2f} samples/s "

    def _eta(self, storage: EventStorage) -> str:
        """The time left, from the times of iterations; before there are any, from the time since the last line."""
        left = self._max_iter - storage.iter - 1
        last, self._last_write = self._last_write, (storage.iter, time.perf_counter())
        if "time" in storage.histories():
            seconds = storage.history("time").median(1000) * left
        elif last is not None and storage.iter > last[0]:
            seconds = (self._last_write[1] - last[1]) / (storage.iter - last[0]) * left
        else:
            return ""
        storage.put_scalar("eta_seconds", seconds, smoothing_hint=False)
        return f"eta: {datetime.timedelta(seconds=int(seconds))}  "


def _drop_unfinished_line(file: Any) -> None:
    size = file.seek(0, os.SEEK_END)
    kept = size
    while kept:
        begin = max(0, kept - 4096)
        file.seek(begin)
        found = file.read(kept - begin).rfind(b"\n")
        if found >= 0:
            kept = begin + found + 1
            break
        kept = begin
    if kept < size:
        file.truncate(kept)
    file.seek(0, os.SEEK_END)
