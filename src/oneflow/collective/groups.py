"""Process groups: which ranks meet, how long they wait for each other, and in which order their values lie."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from oneflow.collective.peers import introduce, meeting

Ranks = tuple[int, ...]
Sizes = tuple[int, ...]
_T = TypeVar("_T")


def group_of(ranks: Ranks) -> Any:
    """The process group of these ranks; those of one set are one group. It must have been made by ``make_groups``."""
    return dist.group.WORLD if len(ranks) == dist.get_world_size() else _group(tuple(sorted(ranks)))


@lru_cache(maxsize=None)
def _group(ranks: Ranks) -> Any:
    with meeting(range(dist.get_world_size())):  # also those that are no members
        return dist.new_group(list(ranks), timeout=timedelta(seconds=patience(dist.group.WORLD)))


def make_groups(groups: Sequence[Ranks]) -> None:
    """Makes process groups for the programs to come. All ranks make all of them in one order, members or not: torch numbers
    them, and a group to which two members give different numbers never comes about. They also tell each other where they run."""
    introduce()
    for ranks in groups:
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
