"""All-reduce among the ranks of one host through memory that they share: no byte of it goes through a socket.

    each rank   makes what it has in its row, or copies it there
    all         wait until every row is written
    each rank   adds up its slice of all rows, into the same slice of the sum
    all         wait until every slice is there

The order of the additions is that of the ranks, so the sum is the same on every rank and in every run. Rows and sum may
be written again in the next step: by then no rank reads them any more.
"""

from __future__ import annotations

import torch

from oneflow.engine.collective.host_group import HostGroup


class SharedSum:
    """A sum of ``count`` elements over the ranks of a host. Its memory has a row for each rank and one for the sum. All
    ranks make it together."""

    def __init__(self, host: HostGroup, count: int, dtype: torch.dtype) -> None:
        rows = host.memory((host.size + 1) * count, dtype).view(host.size + 1, count)
        self.row, self.sum = rows[host.place], rows[host.size]
        slices = [row.tensor_split(host.size)[host.place] for row in rows]
        self._slices, self._target = slices[: host.size], slices[host.size]
        self._host = host

    def begin(self) -> int:
        """Says that this rank's row is written; what it gives is for ``finish``."""
        return self._host.reach()

    def finish(self, begun: int) -> None:
        """Returns when ``sum`` is that of all rows; it stays until the next one is begun."""
        self._host.wait(begun)
        first, second, *others = self._slices
        torch.add(first, second, out=self._target)
        for other in others:
            self._target.add_(other)
        self._host.wait(self._host.reach())
