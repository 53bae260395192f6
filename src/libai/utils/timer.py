"""A clock that can be paused."""

from __future__ import annotations

from time import perf_counter


class Timer:
    """Runs from the moment it is made, or ``reset``."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Starts anew."""
        self._start = perf_counter()
        self._paused: float | None = None
        self._total_paused = 0.0
        self._count_start = 1

    def pause(self) -> None:
        """Stops the clock."""
        if self._paused is not None:
            raise ValueError("Trying to pause a Timer that is already paused!")
        self._paused = perf_counter()

    def is_paused(self) -> bool:
        """Whether the clock stands still."""
        return self._paused is not None

    def resume(self) -> None:
        """Lets a paused clock run again."""
        if self._paused is None:
            raise ValueError("Trying to resume a Timer that is not paused!")
        self._total_paused += perf_counter() - self._paused
        self._paused = None
        self._count_start += 1

    def seconds(self) -> float:
        """How long it has run, without pauses."""
        end = perf_counter() if self._paused is None else self._paused
        return end - self._start - self._total_paused

    def avg_seconds(self) -> float:
        """How long it has run on average each time it was started or resumed."""
        return self.seconds() / self._count_start
