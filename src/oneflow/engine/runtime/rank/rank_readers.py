"""One rank's share of the readers of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.engine.ir.graph import Source


@dataclass(frozen=True)
class Opened:
    """A reader's share of a rank: the source, the numbers of the feeds it makes, and which share of how many it is."""

    source: Source
    feeds: tuple[int, ...]
    share: int = 0
    shares: int = 1


class RankReaders:
    """The readers that this rank has of each job."""

    def __init__(self) -> None:
        self._opened: dict[str, list[Opened]] = {}

    def open(self, job: str, opened: Sequence[Opened]) -> None:
        """Takes the readers of a job, in place of those it had."""
        for one in self._opened.pop(job, []):
            one.source.close()
        for one in opened:
            one.source.share(one.share, one.shares)
        self._opened[job] = list(opened)

    def start(self, job: str) -> None:
        """Begins to read, before the first step asks for it."""
        for one in self._opened.get(job, []):
            one.source.start()

    def has(self, job: str) -> bool:
        return bool(self._opened.get(job))

    def next(self, job: str) -> Mapping[int, torch.Tensor]:
        """Fresh data for one micro-batch, by the number of the feed."""
        return {i: tensor for one in self._opened.get(job, []) for i, tensor in zip(one.feeds, one.source.next())}

    def state(self, job: str, reader: str) -> dict[str, Any] | None:
        """Where a reader stands."""
        return next((one.source.state() for one in self._opened.get(job, []) if one.source.name == reader), None)

    def load_state(self, job: str, reader: str, state: dict[str, Any]) -> None:
        """Takes a reader to where it stood."""
        for one in self._opened.get(job, []):
            if one.source.name == reader:
                one.source.load_state(state)
                return
