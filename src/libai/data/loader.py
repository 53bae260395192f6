"""The loader of batches: torch's, with a batch made by one call, random numbers that belong to samples, and errors that
name a sample."""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from libai.data.together import Together
from libai.data.transfer import Mailbox, Sent
from oneflow.engine.core.errors import DataError
from oneflow.utils.data import DataLoader

_MASK = (1 << 64) - 1


class BatchLoader(DataLoader):
    """Batches of ``dataset`` by the lists of indices of ``batch_sampler``.

    Before a sample is made, Python's, numpy's and torch's generators are seeded by ``seed`` and the place of the sample
    in the run. So augmentations are the same for any number of workers and ranks, and for a run that was resumed. A
    data set that has ``__getitems__(indices)`` is asked for whole batches: it returns an Instance, which is the batch,
    a list of samples, or NotImplemented to be asked for each. With ``is_stacked`` (``collate_fn`` does nothing but
    stack Instances) any other data set is asked for whole batches by its ``__getitem__``, where that gives the same. An
    error of the data set is raised once, as a ``DataError`` with the index and the class, in the program, not in a
    worker. Ctrl-C is left to the program as well.
    """

    def __init__(
        self,
        dataset: Any,
        batch_sampler: Iterable[list[int]],
        collate_fn: Callable[[Any], Any],
        seed: int = 0,
        num_workers: int = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        is_stacked: bool = False,
        **kwargs: Any,
    ) -> None:
        self.seed = seed
        self._is_stacked = is_stacked
        self._mailboxes: list[Mailbox] = []
        kwargs.setdefault(
            "generator", torch.Generator().manual_seed(seed)
        )  # torch's own would be drawn from, which belongs to the program
        init = _WorkerInit(worker_init_fn)
        super().__init__(
            dataset,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            worker_init_fn=init,
            **kwargs,
        )

    @property
    def _index_sampler(self) -> Any:
        return _Placed(self.batch_sampler)

    def _get_iterator(self) -> Any:
        # The iterator, and the workers it starts, read whole batches from a source; everyone else sees the data set
        # itself.
        shown = (self.dataset, self.collate_fn)
        self._mailboxes = self._new_mailboxes()
        source = _Source(self.dataset, self.collate_fn, self.seed, self._is_stacked, self._mailboxes)
        self.__dict__.update(dataset=source, collate_fn=_as_it_is)
        try:
            return super()._get_iterator()
        finally:
            self.__dict__.update(zip(("dataset", "collate_fn"), shown))

    def _new_mailboxes(self) -> list[Mailbox]:
        """One for each worker, if workers are forked; pinned batches go another way."""
        context = self.multiprocessing_context or torch.multiprocessing
        if not self.prefetch_factor or self.pin_memory or context.get_start_method() != "fork":
            return []
        return [Mailbox(self.prefetch_factor + 2) for _ in range(self.num_workers)]

    def __iter__(self) -> Any:
        iterator = super().__iter__()
        return _Batches(self, iterator, self._mailboxes)

    def close(self) -> None:
        """Ends the workers that are kept for the next round; a next round starts others."""
        kept, self._iterator = self._iterator, None
        if kept is not None and hasattr(kept, "_shutdown_workers"):
            kept._shutdown_workers()


class _Batches:
    """The batches of an iterator; a failure among them is raised here, and ends the workers."""

    def __init__(self, loader: BatchLoader, iterator: Any, mailboxes: list[Mailbox]) -> None:
        self._loader, self._iterator, self._mailboxes = loader, iterator, mailboxes

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        batch = next(self._iterator)
        if isinstance(batch, _Failure):
            self._loader.close()
            raise batch.error()
        return self._mailboxes[batch.worker].taken(batch) if isinstance(batch, Sent) else batch


class _Placed:
    """The lists of a sampler of batches, each with the place of its first sample among all samples of the run."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[_PlacedBatch]:
        counted = 0
        for indices in self._sampler:
            yield _PlacedBatch(indices, getattr(self._sampler, "position", counted))
            counted += len(indices)

    def __len__(self) -> int:
        return len(self._sampler)


class _PlacedBatch(list):
    def __init__(self, indices: Iterable[int] = (), place: int = 0) -> None:
        super().__init__(indices)
        self.place = place


class _Source:
    """What a worker reads: batches of a data set, collated."""

    def __init__(
        self, dataset: Any, collate: Callable[[Any], Any], seed: int, is_stacked: bool, mailboxes: list[Mailbox]
    ) -> None:
        self._dataset, self._collate, self._seed, self._mailboxes = dataset, collate, seed, mailboxes
        self._at_once = getattr(dataset, "__getitems__", None)
        self._together = Together(dataset) if is_stacked else None

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, batch: _PlacedBatch) -> Any:
        worker = get_worker_info()
        if worker is not None:
            return self._posted(self._made(batch), worker.id)
        with _own_random_numbers():
            return self._made(batch)

    def _posted(self, batch: Any, worker: int) -> Any:
        sent = self._mailboxes[worker].put(batch) if self._mailboxes else batch
        if isinstance(sent, Sent):
            sent.worker = worker
        return sent

    def _made(self, batch: _PlacedBatch) -> Any:
        samples = self._all_at_once(batch) if callable(self._at_once) else NotImplemented
        if samples is not NotImplemented:
            return self._collated(batch, samples)

        def single() -> Any:
            return self._collated(batch, self._one_by_one(batch))

        return single() if self._together is None else self._together.batch(batch, single)

    def _collated(self, batch: _PlacedBatch, samples: Any) -> Any:
        if isinstance(samples, _Failure):
            return samples
        try:
            return self._collate(samples)
        except Exception as error:
            return _Failure(f"the samples {list(batch)} of {_name(self._dataset)} do not make a batch", error)

    def _all_at_once(self, batch: _PlacedBatch) -> Any:
        _seed_all(self._seed, batch.place)
        try:
            return self._at_once(list(batch))  # type: ignore[misc]
        except Exception as error:
            return _Failure(f"the samples {list(batch)} of {_name(self._dataset)} cannot be read", error)

    def _one_by_one(self, batch: _PlacedBatch) -> Any:
        samples = []
        for place, index in enumerate(batch, batch.place):
            _seed_all(self._seed, place)
            try:
                samples.append(self._dataset[index])
            except Exception as error:
                return _Failure(f"sample {index} of {_name(self._dataset)} cannot be read", error)
        return samples


class _Failure:
    """An error on its way from a worker to the program, as text: not every exception can be sent."""

    def __init__(self, what: str, error: Exception) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        inside = [frame for frame in frames if frame.filename != __file__]
        at = f" ({inside[-1].filename}:{inside[-1].lineno})" if inside else ""
        self.message = f"{what}: {type(error).__name__}: {error}{at}"
        self.told = "".join(traceback.format_exception(error))

    def error(self) -> DataError:
        error = DataError(self.message)
        error.add_note(f"in the data set:\n{self.told}")
        return error


class _WorkerInit:
    """Leaves Ctrl-C to the program, which saves and stops its workers itself."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._then is not None:
            self._then(worker)


def _seed_all(seed: int, place: int) -> None:
    mixed = _mixed(seed * 0x9E3779B97F4A7C15 + place)
    torch.default_generator.manual_seed(mixed)
    random.seed(mixed)
    np.random.seed(mixed & 0xFFFFFFFF)


def _mixed(value: int) -> int:
    """Neighbouring numbers made unlike (the finaliser of splitmix64)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


@contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Gives the generators back as they were: without workers samples are made beside the training, which draws from
    the same ones."""
    kept = (torch.get_rng_state(), random.getstate(), np.random.get_state())
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        np.random.set_state(kept[2])


def _as_it_is(batch: Any) -> Any:
    return batch


def _name(dataset: Any) -> str:
    parts: Sequence[Any] = getattr(dataset, "datasets", ())
    return (
        f"{type(dataset).__name__} of {', '.join(type(part).__name__ for part in parts)}"
        if parts
        else type(dataset).__name__
    )
