"""``flow.comm``: what the processes of a launcher exchange by hand, with tensors of their own (local tensors).

Every rank calls the same function at the same place of its program; `send` and `recv` are calls of two ranks. Ranks of
one host meet in memory that they share, and see at once when they call different things; others meet through gloo, or
NCCL for tensors on GPUs. Waits end: a rank that has ended, or is silent for longer than ``ONEFLOW_STEP_TIMEOUT``, is an
error that names it. Alone, a process is a world of one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from oneflow.compat.absent import absent

# Loaded when one of them is first asked for: a program that exchanges nothing by hand should not wait for it.
_COLLECTIVES = (
    *(
        "all_gather",
        "all_gather_into_tensor",
        "all_reduce",
        "all_to_all",
        "barrier",
        "broadcast",
        "gather",
        "reduce",
        "reduce_scatter",
    ),
    *("reduce_scatter_tensor", "scatter"),
)
_PAIRS = ("recv", "send")

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "reduce",
]  # noqa: F822
__all__ += ["reduce_scatter", "reduce_scatter_tensor", "scatter", "send"]  # noqa: F822


def __getattr__(name: str) -> Any:
    if name in _COLLECTIVES:
        return getattr(import_module("oneflow.comm.collectives"), name)
    if name in _PAIRS:
        return getattr(import_module("oneflow.comm.pairs"), name)
    return _unknown(name)


def __dir__() -> list[str]:
    return sorted(__all__)


_unknown = absent("oneflow.comm", {}, lambda: dict.fromkeys(__all__))
