"""Process groups: which ranks meet, how long they wait for each other, and in which order their values lie."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from oneflow.engine.collective.peers import introduce, meeting

Ranks = tuple[int, ...]
Sizes = tuple[int, ...]
_T = TypeVar("_T")


def group_of(ranks: Ranks) -> Any:
    """The process group of these ranks, this one among them; those of one set are one group. Its members make it when
    they first ask for it, and only they: each waits for all."""
    world = dist.group.WORLD
    return world if len(ranks) == dist.get_world_size() else _group(world, tuple(sorted(ranks)))


@lru_cache(maxsize=None)
def _group(world: Any, ranks: Ranks) -> Any:
    """torch numbers the groups it makes, so all ranks of the world would have to make all groups in one order, members
    or not. A group that is named by its ranks comes about whatever else its members have made before."""
    backend, store = distributed_c10d._world.pg_map[world]
    name, limit = f"oneflow/{'_'.join(map(str, ranks))}", timedelta(seconds=patience(world))
    with meeting(ranks):
        group, _ = distributed_c10d._new_process_group_helper(
            len(ranks), place_in(ranks), list(ranks), backend, store, distributed_c10d.GroupName(name), timeout=limit
        )
    distributed_c10d._world.pg_group_ranks[group] = {rank: place for place, rank in enumerate(ranks)}
    return group


def make_groups(groups: Sequence[Ranks]) -> None:
    """Makes the process groups of the programs to come of which this rank is a member. All ranks make theirs in one
    order: two groups with two common members would wait for each other. All ranks also tell each other where they
    run."""
    introduce()
    for ranks in groups:
        if dist.get_rank() in ranks:
            group_of(ranks)


def patience(group: Any) -> float:
    """For how many seconds the ranks of a group wait for each other."""
    return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()


def place_in(ranks: Ranks) -> int:
    """Where this rank stands among them."""
    return ranks.index(dist.get_rank())


def is_sorted(ranks: Ranks) -> bool:
    return all(first < second for first, second in zip(ranks, ranks[1:]))


def by_rank(values: Sequence[_T], ranks: Ranks) -> list[_T]:
    """What belongs to each member, in the order of a process group: by rank, whatever the order of the placement."""
    return [values[ranks.index(rank)] for rank in sorted(ranks)]


def by_place(values: Sequence[_T], ranks: Ranks) -> list[_T]:
    """The inverse of ``by_rank``."""
    order = sorted(ranks)
    return [values[order.index(rank)] for rank in ranks]
