"""``flow.utils.data.dataloader``: torch's loader with OneFlow's arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, Sampler, default_collate, default_convert, get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_PREFETCH = 2  # OneFlow's default, which a program may also write out without workers


class DataLoader(TorchDataLoader):
    """torch's ``DataLoader``. ``prefetch_factor`` is 2 by default, and may be given as 2 without workers, where torch
    takes None alone.

    Any other ``prefetch_factor``, and ``persistent_workers``, need ``num_workers > 0``. Workers start with the first
    iteration.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        *args: Any,
        prefetch_factor: int | None = _PREFETCH,
        **kwargs: Any,
    ) -> None:
        if num_workers == 0 and prefetch_factor == _PREFETCH:
            prefetch_factor = None
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            *args,
            prefetch_factor=prefetch_factor,
            **kwargs,
        )
