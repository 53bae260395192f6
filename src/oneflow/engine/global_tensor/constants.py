"""Permission for local constants in ops on global tensors.

A local tensor may differ between ranks, so ops on global tensors reject it. Code that creates a constant which is the
same on every rank, such as torch's decomposition of an op, grants the permission for its own calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ALLOWED: ContextVar[bool] = ContextVar("local_constants", default=False)


@contextmanager
def local_constants() -> Iterator[None]:
    """Allows local tensors in ops on global ones, in this thread. They must be equal on all ranks."""
    token = _ALLOWED.set(True)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


def are_allowed() -> bool:
    """Returns whether the calling thread is inside ``local_constants``."""
    return _ALLOWED.get()
