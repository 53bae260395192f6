"""The values that a scalar has had."""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np


class HistoryBuffer:
    """The last ``max_length`` values of a scalar with their iterations, and the mean of all it ever had."""

    def __init__(self, max_length: int = 1000000) -> None:
        self._data: deque[tuple[float, float]] = deque(maxlen=max_length)
        self._count = 0
        self._sum = 0.0

    def update(self, value: float, iteration: float | None = None) -> None:
        """Adds a value; its iteration is by default the number of values before it."""
        self._data.append((value, self._count if iteration is None else iteration))
        self._count += 1
        self._sum += value

    def latest(self) -> float:
        """The last value."""
        return self._data[-1][0]

    def median(self, window_size: int) -> float:
        """The median of the last ``window_size`` values."""
        values = np.array(self._last(window_size))
        # by hand: np.median takes many times as long for so few values, and they are asked for at every line of a log
        values.sort()
        if values[-1] != values[-1]:  # those that are no numbers come last
            return float("nan")
        half = len(values) // 2
        return float(values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2)

    def avg(self, window_size: int) -> float:
        """The mean of the last ``window_size`` values."""
        values = np.array(self._last(window_size))
        return float(values.sum() / len(values))

    def global_avg(self) -> float:
        """The mean of all values, those included that are no longer kept."""
        return self._sum / self._count

    def values(self) -> list[tuple[float, float]]:
        """The values that are kept, each with its iteration."""
        return list(self._data)

    def _last(self, window_size: int) -> list[float]:
        return [value for value, _ in islice(reversed(self._data), window_size)]
