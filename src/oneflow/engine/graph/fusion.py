"""How many gradients of a graph are summed over the ranks by one call. OneFlow has it as a setting of the process,
which every graph compiled later follows."""

from __future__ import annotations

from dataclasses import replace

from oneflow.engine.core.bucket_limits import BucketLimits


class Fusion:
    """The setting of this process. Ranks that set it differently are told so when they compare their plans."""

    def __init__(self) -> None:
        self._limits = BucketLimits()
        self._is_on = True

    def limits(self) -> BucketLimits:
        """What the buckets of a graph hold at most."""
        return self._limits if self._is_on else replace(self._limits, tensors=1)

    def enable(self, is_on: bool) -> None:
        """Whether sums are put together at all."""
        self._is_on = is_on

    def set_bytes(self, size: int) -> None:
        """From now on a bucket holds at most so many bytes, or one tensor."""
        self._limits = replace(self._limits, bytes=size)

    def set_tensors(self, count: int) -> None:
        """From now on a bucket holds at most so many tensors."""
        self._limits = replace(self._limits, tensors=count)


FUSION = Fusion()
