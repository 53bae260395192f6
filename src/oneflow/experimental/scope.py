"""``flow.experimental.scope``: settings of the ops inside a ``with`` block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from oneflow.engine.core.number import flag
from oneflow.engine.ir.trace import require_trace

__all__ = ["config"]

_REGIONS = itertools.count(1)


@contextmanager
def config(**kwargs: Any) -> Iterator[None]:
    """``checkpointing=True``: what the ops inside make is not kept for the backward pass but made again there. Other
    keys change nothing."""
    regions = require_trace("with flow.experimental.scope.config").regions
    recomputes = kwargs.get("checkpointing")
    inside = regions[-1] if recomputes is None else next(_REGIONS) if flag("checkpointing", recomputes) else None
    regions.append(inside)
    try:
        yield
    finally:
        regions.pop()
