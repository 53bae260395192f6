"""``flow.profiler``: torch's profiler with OneFlow's names."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch.autograd.profiler import ProfilerActivity, record_function

from oneflow.array import identity
from oneflow.engine.core.errors import ArgumentError, NoDeviceError
from oneflow.engine.ir.blob import Blob

if TYPE_CHECKING:
    from torch.profiler import profile as Profile

__all__ = [
    "nvtx_end",
    "nvtx_start",
    "ProfilerActivity",
    "profile",
    "profiler_start",
    "profiler_stop",
    "range_pop",
    "range_push",
    "record_function",
]

_OPEN = threading.local()  # ranges that this thread has pushed


def profile(
    activities: Iterable[ProfilerActivity] | None = None,
    record_shapes: bool = False,
    record_bandwidth_for_cuda: bool = False,
) -> Profile:
    """A context that measures ops; ``key_averages()`` of it tells their times."""
    from torch.profiler import profile as torchs

    if record_bandwidth_for_cuda:
        raise ArgumentError(
            "record_bandwidth_for_cuda is not measured; leave it False and read the times of key_averages()"
        )
    return torchs(activities=activities, record_shapes=record_shapes)


def range_push(range_name: str) -> None:
    """Opens a range that a running profiler shows under ``range_name``."""
    made = record_function(range_name)
    made.__enter__()
    _ranges().append(made)


def range_pop() -> None:
    """Closes the range that was opened last."""
    if not _ranges():
        raise ArgumentError("range_pop closes the range that range_push opened last, and none is open in this thread")
    _ranges().pop().__exit__(None, None, None)


def nvtx_start(x: Blob, mark_prefix: str, name: str | None = None) -> Blob:
    """x itself: ranges of a job are those of its ops, which a profiler shows anyway."""
    return identity(x, name)


def nvtx_end(x: Blob, mark_prefix: str, name: str | None = None) -> Blob:
    """x itself, see ``nvtx_start``."""
    return identity(x, name)


def _ranges() -> list[record_function]:
    if not hasattr(_OPEN, "ranges"):
        _OPEN.ranges = []
    return _OPEN.ranges


def profiler_start() -> None:
    """Starts the collection of NVIDIA's profilers."""
    _require_cuda("profiler_start")
    torch.cuda.profiler.start()


def profiler_stop() -> None:
    """Stops the collection of NVIDIA's profilers."""
    _require_cuda("profiler_stop")
    torch.cuda.profiler.stop()


def _require_cuda(what: str) -> None:
    if not torch.cuda.is_available():
        raise NoDeviceError(
            f"flow.profiler.{what} steers NVIDIA's profilers and there is no CUDA device; use flow.profiler.profile()"
        )
