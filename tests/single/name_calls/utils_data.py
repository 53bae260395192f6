"""``flow.utils.data``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from oneflow.utils import data


class _Squares(data.Dataset):
    def __getitem__(self, index: int) -> int:
        return index * index

    def __len__(self) -> int:
        return 5


class _Counting(data.IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


def _pipe(name: str | None = None) -> Any:
    """A data pipe of three numbers; with a name also a method of all pipes."""

    class Numbers(data.IterDataPipe):
        def __init__(self, source: Any = (1, 2, 3)) -> None:
            self.source = source

        def __iter__(self) -> Iterator[int]:
            return (value + 1 for value in self.source)

    return data.functional_datapipe(name)(Numbers) if name else Numbers


def _batches(loader: data.DataLoader) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def _data_loader() -> None:
    assert _batches(data.DataLoader(_Squares(), batch_size=2)) == [[0, 1], [4, 9], [16]]
    assert _batches(data.DataLoader(_Squares(), batch_size=2, drop_last=True, prefetch_factor=2)) == [[0, 1], [4, 9]]


def _dataset() -> None:
    assert len(_Squares() + _Squares()) == 10


def _iterable_dataset() -> None:
    assert _batches(data.DataLoader(_Counting(), batch_size=3)) == [[0, 1, 2], [3, 4]]


def _tensor_dataset() -> None:
    images, labels = torch.arange(6).reshape(3, 2), torch.tensor([7, 8, 9])
    image, label = data.TensorDataset(images, labels)[1]
    assert image.tolist() == [2, 3] and label.item() == 8


def _concat_dataset() -> None:
    assert list(data.ConcatDataset([_Squares(), [100, 200]]))[4:] == [16, 100, 200]


def _subset() -> None:
    assert list(data.Subset(_Squares(), [3, 0])) == [9, 0]


def _random_split() -> None:
    one, other = data.random_split(_Squares(), [3, 2])
    assert len(one) == 3 and sorted([*one, *other]) == [0, 1, 4, 9, 16]
    again, _ = data.random_split(_Squares(), [3, 2], generator=torch.Generator().manual_seed(1))
    assert [*again] == [*data.random_split(_Squares(), [3, 2], generator=torch.Generator().manual_seed(1))[0]]


def _sampler() -> None:
    class Backwards(data.Sampler):
        def __iter__(self) -> Iterator[int]:
            return iter([4, 3, 2])

        def __len__(self) -> int:
            return 3

    assert _batches(data.DataLoader(_Squares(), sampler=Backwards())) == [[16], [9], [4]]


def _sequential_sampler() -> None:
    assert list(data.SequentialSampler(_Squares())) == [0, 1, 2, 3, 4]


def _random_sampler() -> None:
    assert sorted(data.RandomSampler(_Squares())) == [0, 1, 2, 3, 4]
    assert len(list(data.RandomSampler(_Squares(), replacement=True, num_samples=9))) == 9


def _subset_random_sampler() -> None:
    assert sorted(data.SubsetRandomSampler([4, 1])) == [1, 4]


def _batch_sampler() -> None:
    sampler = data.BatchSampler(data.SequentialSampler(_Squares()), 2, drop_last=True)
    assert list(sampler) == [[0, 1], [2, 3]]
    loader = data.DataLoader(_Squares(), batch_sampler=sampler)
    assert loader.batch_sampler is sampler and len(loader) == 2


def _distributed_sampler() -> None:
    assert [list(data.DistributedSampler(_Squares(), 2, rank, shuffle=False)) for rank in (0, 1)] == [
        [0, 2, 4],
        [1, 3, 0],
    ]
    assert sorted(data.DistributedSampler(_Squares())) == [0, 1, 2, 3, 4]


def _get_worker_info() -> None:
    assert data.get_worker_info() is None


def _iter_data_pipe() -> None:
    assert list(_pipe()()) == [2, 3, 4]


def _functional_datapipe() -> None:
    name = "one_more_for_tests"
    if name not in data.IterDataPipe.functions:
        _pipe(name)
    assert list(getattr(_pipe()(), name)()) == [3, 4, 5]


def _non_deterministic() -> None:
    assert list(data.non_deterministic(_pipe())()) == [2, 3, 4]


def _guaranteed_determinism() -> None:
    changing = data.non_deterministic(_pipe())
    with data.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="Numbers is non-deterministic"):
        changing()
    assert list(changing()) == [2, 3, 4]


CALLS = {
    f"oneflow.utils.data.{name}": call
    for name, call in {
        "BatchSampler": _batch_sampler,
        "ConcatDataset": _concat_dataset,
        "DataLoader": _data_loader,
        "Dataset": _dataset,
        "DistributedSampler": _distributed_sampler,
        "IterDataPipe": _iter_data_pipe,
        "IterableDataset": _iterable_dataset,
        "RandomSampler": _random_sampler,
        "Sampler": _sampler,
        "SequentialSampler": _sequential_sampler,
        "Subset": _subset,
        "SubsetRandomSampler": _subset_random_sampler,
        "TensorDataset": _tensor_dataset,
        "functional_datapipe": _functional_datapipe,
        "get_worker_info": _get_worker_info,
        "guaranteed_datapipes_determinism": _guaranteed_determinism,
        "non_deterministic": _non_deterministic,
        "random_split": _random_split,
    }.items()
}
