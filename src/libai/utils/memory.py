"""How much memory a run has needed."""

from __future__ import annotations

import resource
import sys

import torch


def peak_memory_mb() -> float:
    """The most memory this process has had at once, in MiB: on the GPU where it has used one, else of the process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
