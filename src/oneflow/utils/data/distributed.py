"""``flow.utils.data.distributed``: every process its own part of a data set."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset
from torch.utils.data import DistributedSampler as TorchDistributedSampler

from oneflow.engine.world import current_world

__all__ = ["DistributedSampler"]


class DistributedSampler(TorchDistributedSampler):
    """torch's sampler, which asks for an initialised process group; here rank and number of processes come from the
    launcher without one.

    The order is that of torch: every ``num_replicas``-th index of a permutation of ``seed`` and epoch (``set_epoch``),
    filled up to the same number for all, or cut with ``drop_last``. One process without a launcher reads everything.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = current_world().size
        if rank is None:
            rank = current_world().rank
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
