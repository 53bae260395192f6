"""Samplers of batches: each gives lists of ``micro_batch_size`` indices for one rank of data parallelism.

By default the ranks have contiguous parts of the data set, buckets, for ever. With ``rank_buckets=False`` they share
out each global batch of one order of the whole set: the samples of an iteration are then the same for any number of
ranks with one global batch size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import whole
from oneflow.utils.data import Sampler


class CyclicSampler(Sampler):
    """Batches without end, epoch after epoch; what does not fill a global batch is left out of every epoch.

    ``shuffle`` orders epoch e by a permutation of seed ``seed + e``. ``consumed_samples`` counts samples of all ranks:
    a sampler that is made with the count at which another stopped goes on where that one was. ``len`` is the number of
    samples of the data set.
    """

    def __init__(
        self,
        dataset: Sized,
        micro_batch_size: int,
        shuffle: bool = False,
        consumed_samples: int = 0,
        data_parallel_rank: int = 0,
        data_parallel_size: int = 1,
        seed: int = 0,
        rank_buckets: bool = True,
    ) -> None:
        self.dataset = dataset
        self.data_size = len(dataset)
        self.shuffle = shuffle
        self.seed = seed
        self.rank_buckets = rank_buckets
        self.data_parallel_rank, self.data_parallel_size = _ranks(data_parallel_rank, data_parallel_size)
        self.micro_batch_size = whole("micro_batch_size", micro_batch_size, 1)
        self.actual_batch_size = self.micro_batch_size * self.data_parallel_size
        self.data_size_per_epoch = self.data_size // self.actual_batch_size * self.micro_batch_size
        if self.data_size_per_epoch == 0:
            raise ArgumentError(
                f"the data set has {self.data_size} samples, less than one global batch of {self.actual_batch_size} "
                f"(micro_batch_size {self.micro_batch_size} on {self.data_parallel_size} ranks); make the batch smaller"
            )
        self.consumed_samples = whole("consumed_samples", consumed_samples, 0)
        self.epoch = self.consumed_samples // (self.data_size_per_epoch * self.data_parallel_size)
        self.position = (
            0  # where the batch that was given last begins, among the samples of all ranks since the first epoch
        )

    def __iter__(self) -> Iterator[list[int]]:
        per_epoch = self.data_size_per_epoch * self.data_parallel_size
        while True:
            self.epoch, done = divmod(self.consumed_samples, per_epoch)
            indices = self._of_epoch(self.epoch)[done // self.data_parallel_size :]
            if hasattr(self.dataset, "supports_prefetch") and self.dataset.supports_prefetch:
                self.dataset.prefetch(indices)  # type: ignore[attr-defined]
            for begin in range(0, len(indices), self.micro_batch_size):
                self.position = self.consumed_samples + self.data_parallel_rank * self.micro_batch_size
                self.consumed_samples += self.actual_batch_size
                yield indices[begin : begin + self.micro_batch_size]

    def __len__(self) -> int:
        return self.data_size

    def set_consumed_samples(self, consumed_samples: int) -> None:
        """The samples of all ranks that are used already; the next iteration goes on behind them."""
        self.consumed_samples = whole("consumed_samples", consumed_samples, 0)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration begins this epoch."""
        self.set_consumed_samples(whole("epoch", epoch, 0) * self.data_size_per_epoch * self.data_parallel_size)

    def _of_epoch(self, epoch: int) -> list[int]:
        """The indices of this rank in one epoch, ``data_size_per_epoch`` of them."""
        if self.rank_buckets:
            begin = self.data_parallel_rank * self.data_size_per_epoch
            return [begin + index for index in self._order(self.data_size_per_epoch, epoch)]
        batches = self._order(self.data_size_per_epoch * self.data_parallel_size, epoch)
        first = self.data_parallel_rank * self.micro_batch_size
        return [
            index
            for begin in range(first, len(batches), self.actual_batch_size)
            for index in batches[begin : begin + self.micro_batch_size]
        ]

    def _order(self, count: int, epoch: int) -> list[int]:
        return _permutation(count, self.seed + epoch) if self.shuffle else list(range(count))


class SingleRoundSampler(Sampler):
    """Every sample once. Ranks have near-equal contiguous buckets, the first of them one sample more; without
    ``drop_last`` a rank that has one less ends with sample 0 again, so that all have as many, and the last batch may be
    short. ``len`` is the number of batches.

    With ``rank_buckets=False`` each global batch of consecutive samples is shared out, and sample 0 fills the last one
    up where its size is not a multiple of the ranks; the samples that count are then the first ``len(dataset)`` of all.
    """

    def __init__(
        self,
        dataset: Sized,
        micro_batch_size: int,
        shuffle: bool = False,
        data_parallel_rank: int = 0,
        data_parallel_size: int = 1,
        seed: int = 0,
        drop_last: bool = False,
        rank_buckets: bool = True,
    ) -> None:
        self.dataset = dataset
        self.data_size = len(dataset)
        if self.data_size == 0:
            raise ArgumentError("the data set has no samples")
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.rank_buckets = rank_buckets
        self.data_parallel_rank, self.data_parallel_size = _ranks(data_parallel_rank, data_parallel_size)
        self.micro_batch_size = whole("micro_batch_size", micro_batch_size, 1)
        self.position = 0  # where the batch that was given last begins, among the samples of all ranks

    def __iter__(self) -> Iterator[list[int]]:
        for number, batch in enumerate(self._of_buckets() if self.rank_buckets else self._of_whole_batches()):
            self.position = number * self.micro_batch_size * self.data_parallel_size + self.data_parallel_rank * len(
                batch
            )
            yield batch

    def __len__(self) -> int:
        global_batch_size = self.micro_batch_size * self.data_parallel_size
        return self.data_size // global_batch_size if self.drop_last else -(-self.data_size // global_batch_size)

    def _of_buckets(self) -> Iterator[list[int]]:
        size, remainder = divmod(self.data_size, self.data_parallel_size)
        begin = self.data_parallel_rank * size + min(self.data_parallel_rank, remainder)
        own = size + (self.data_parallel_rank < remainder)
        indices = [begin + index for index in self._order(own)]
        if remainder and own == size and not self.drop_last:
            indices.append(0)
        for number in range(len(self)):
            yield indices[number * self.micro_batch_size : (number + 1) * self.micro_batch_size]

    def rows_that_count(self, number: int) -> list[int]:
        """Where the samples of batch ``number`` lie in the batch of all ranks together, without those that only fill it
        up."""
        if self.rank_buckets:
            return self._rows_of_buckets(number)
        global_batch_size = self.micro_batch_size * self.data_parallel_size
        return list(range(min(global_batch_size, self.data_size - number * global_batch_size)))

    def _rows_of_buckets(self, number: int) -> list[int]:
        size, remainder = divmod(self.data_size, self.data_parallel_size)
        padded = size + (remainder > 0 and not self.drop_last)
        share = min(self.micro_batch_size, padded - number * self.micro_batch_size)
        counts = [
            min(share, size + (rank < remainder) - number * self.micro_batch_size)
            for rank in range(self.data_parallel_size)
        ]
        return [rank * share + row for rank, count in enumerate(counts) for row in range(count)]

    def _of_whole_batches(self) -> Iterator[list[int]]:
        order = self._order(self.data_size)
        global_batch_size = self.micro_batch_size * self.data_parallel_size
        for number in range(len(self)):
            batch = order[number * global_batch_size : (number + 1) * global_batch_size]
            share = -(-len(batch) // self.data_parallel_size)
            batch += [0] * (share * self.data_parallel_size - len(batch))
            yield batch[self.data_parallel_rank * share : (self.data_parallel_rank + 1) * share]

    def _order(self, count: int) -> list[int]:
        return _permutation(count, self.seed) if self.shuffle else list(range(count))


def _permutation(count: int, seed: int) -> list[int]:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()


def _ranks(rank: Any, size: Any) -> tuple[int, int]:
    size = whole("data_parallel_size", size, 1)
    return whole("data_parallel_rank", rank, 0, size - 1), size
