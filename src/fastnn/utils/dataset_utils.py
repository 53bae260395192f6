"""Batches of pictures and labels: read, decoded and preprocessed by threads ahead of the step; exact to resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastnn.errors import FlagError
from fastnn.flags import Flags
from oneflow.data import Draws, Loader, Parts
from oneflow.engine.core.errors import DataError
from oneflow.engine.data.formats.records import Record
from oneflow.engine.data.loader import available_cores

Batch = tuple[Tensor, Tensor]

_MOST_BYTES_AHEAD = 256 << 20


@dataclass(frozen=True)
class Share:
    """One worker of several."""

    worker: int = 0
    workers: int = 1

    def by_file(self, files: Sequence[str]) -> bool:
        """Whether there is a file for each worker; otherwise records are shared out."""
        return self.workers > 1 and len(files) >= self.workers

    def files(self, files: Sequence[str]) -> list[str]:
        """Every ``workers``-th file, from the worker's own number on."""
        return list(files[self.worker :: self.workers])


class DatasetIterator:
    """Batches, by ``get_next()`` or in a loop. ``state()`` and ``load_state()`` say and set where it stands."""

    batch_size: int

    def get_next(self) -> Batch:
        """The next batch; the end of the data is a ``StopIteration``."""
        raise NotImplementedError

    def __next__(self) -> Batch:
        return self.get_next()

    def __iter__(self) -> Iterator[Batch]:
        return self

    @property
    def steps(self) -> int | None:
        """The number of batches in all; None without end."""
        return None

    def state(self) -> dict[str, Any]:
        """Fit for JSON."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on where ``state`` was taken."""

    def close(self) -> None:
        """Ends the threads."""


class MockIterator(DatasetIterator):
    """Pictures of ones with the label 1, without end: for measuring."""

    def __init__(self, image_size: int, batch_size: int) -> None:
        self.batch_size = batch_size
        self._batch = torch.ones(batch_size, image_size, image_size, 3), torch.ones(batch_size, dtype=torch.int64)

    def get_next(self) -> Batch:
        return self._batch


class RecordIterator(DatasetIterator):
    """Batches from TFRecord files.

    Records are mixed and repeated before they are put into batches, so a batch may straddle two epochs and the last one
    may be short. Workers share out files where there are enough of them, and take equally many steps; otherwise each
    step's records, of which a last step that does not fill all workers is left out.
    """

    def __init__(
        self,
        files: Sequence[str],
        parse_fn: Callable[[Any], tuple[Any, Any]],
        preprocessing_fn: Callable[..., Any] | None,
        image_size: int,
        share: Share,
        is_training: bool,
        flags: Flags,
    ) -> None:
        self.batch_size = flags.batch_size
        self._sample = _Sample(parse_fn, preprocessing_fn, image_size, flags.labels_offset)
        by_file = share.by_file(files)
        self._share = Share() if by_file else share
        epochs = flags.num_epochs if is_training else 1
        parts = Parts(share.files(files) if by_file else files)
        counts = (
            [
                _record_count(Share(worker, share.workers).files(files))
                for worker in range(share.workers)
                if worker != share.worker
            ]
            if by_file
            else []
        )
        self._samples = epochs * min([len(parts), *counts])
        self._taken = 0
        self._loader = Loader(
            _Cached(parts) if flags.datasets_use_caching else parts,
            self.batch_size,
            self._sample,
            order="buffer" if is_training else "sequential",
            shuffle_buffer_size=max(1, flags.shuffle_buffer_size),
            seed=flags.seed + (share.worker if by_file else 0),
            rank=self._share.worker,
            world=self._share.workers,
            threads=max(1, min(flags.num_preprocessing_threads, available_cores())),
            prefetch=self._ahead(image_size, flags, is_training),
        )

    def _ahead(self, image_size: int, flags: Flags, is_training: bool) -> int:
        """Batches in work or ready: what the flags ask for, within the steps that there are and within some memory."""
        asked = max(1, flags.prefetch_buffer_size) + max(0, flags.num_parallel_batches)
        room = _MOST_BYTES_AHEAD // (12 * image_size * image_size * self.batch_size)
        steps = min(self.steps, flags.stop_at_step) if is_training else self.steps
        return max(1, min(asked, max(2, room), steps))

    @property
    def steps(self) -> int:
        step = self.batch_size * self._share.workers
        return self._samples // step if self._share.workers > 1 else -(-self._samples // step)

    def get_next(self) -> Batch:
        left, step = self._samples - self._taken, self.batch_size * self._share.workers
        if left <= 0 or (left < step and self._share.workers > 1):
            raise StopIteration
        images, labels = next(iter(self._loader))
        self._taken += step
        return (images, labels) if left >= step else (images[:left], labels[:left])

    def state(self) -> dict[str, Any]:
        return {"taken": self._taken, "loader": self._loader.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        if (
            not isinstance(state, dict)
            or type(state.get("taken")) is not int
            or not isinstance(state.get("loader"), dict)
        ):
            raise DataError(f"{state!r:.200} is not a position of a data set, as state() gives it")
        self._loader.load_state(state["loader"])
        self._taken = state["taken"]

    def close(self) -> None:
        self._loader.close()


def _record_count(files: Sequence[str]) -> int:
    with Parts(files) as parts:
        return len(parts)


class _Sample:
    """From a record to a picture and a label."""

    def __init__(
        self,
        parse_fn: Callable[[Any], tuple[Any, Any]],
        preprocessing_fn: Callable[..., Any] | None,
        image_size: int,
        labels_offset: int,
    ) -> None:
        self._parse, self._preprocess, self._size, self._offset = parse_fn, preprocessing_fn, image_size, labels_offset

    def __call__(self, record: Record, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        image, label = self._parse(bytes(record.body))
        if not isinstance(image, (np.ndarray, Tensor)):  # TensorFlow's, where it is installed
            image = np.asarray(image)
        if self._preprocess is not None:
            random = {"draws": draws.stream()} if getattr(self._preprocess, "takes_draws", False) else {}
            image = self._preprocess(image, self._size, self._size, **random)
        number = np.asarray(label).reshape(-1)
        if number.size != 1:
            raise DataError(f"parse_fn gave {number.size} labels for one picture; it gives (image, label)")
        return np.asarray(image, np.float32), number[0].astype(np.int64) - self._offset


class _Cached:
    """Records that are read once and then kept as they are, compressed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._records: dict[int, Record] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, number: int) -> Record:
        record = self._records.get(number)
        if record is None:
            record = self._records[number] = self._parts[number]
        return record

    def fingerprint(self) -> dict[str, Any]:
        return self._parts.fingerprint()

    def close(self) -> None:
        self._parts.close()


def require_labels(labels: Tensor, num_classes: int) -> Tensor:
    """The labels, where each is one of ``num_classes``; a wrong one is an error that says which flags to look at."""
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= num_classes:
        raise FlagError(
            f"the data has labels from {low} to {high}, and the network {num_classes} classes; set --num_classes, or "
            f"--labels_offset to move labels"
        )
    return labels
