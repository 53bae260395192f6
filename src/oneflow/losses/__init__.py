"""``flow.losses``: what a train job makes small."""

from __future__ import annotations

from oneflow.engine.core.errors import DTypeError, JobError
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.trace import require_trace

__all__ = ["add_loss"]


def add_loss(loss: Blob) -> None:
    """Makes ``loss`` an objective of the running train job: the mean of its elements is made small."""
    trace = require_trace("flow.losses.add_loss")
    if not isinstance(loss, Blob):
        raise DTypeError(f"add_loss takes one blob, got {type(loss).__name__}; add several losses one by one")
    if loss.node.graph is not trace.graph.body:
        raise JobError(f"add_loss was given {loss!r}, which belongs to another job or another trace of this one")
    trace.add_loss(loss.node)
