"""Which process of how many this one is, where every process runs the same program."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch.distributed as dist

from oneflow.core.errors import ArgumentError


def rank_and_size(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """This process's rank and the number of processes: those of torch.distributed once it is initialised, else those that a launcher has put
    into RANK and WORLD_SIZE, else 0 and 1."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    texts = environment.get("RANK", "0"), environment.get("WORLD_SIZE", "1")
    if not all(text.isdecimal() for text in texts) or int(texts[0]) >= int(texts[1]):
        raise ArgumentError(f"RANK={texts[0]!r} and WORLD_SIZE={texts[1]!r} are no rank of a world; set both, ranks count from 0, or neither")
    return int(texts[0]), int(texts[1])
