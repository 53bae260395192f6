"""How blobs lie over a placement. The values stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneflow.array._arguments import apply, blob_of
from oneflow.compat.spellings import spelled
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.core.sbp import AUTO, Sbp, format_layout
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.notes import change_op_note
from oneflow.engine.ir.trace import require_trace
from oneflow.engine.ir.variable import distribution
from oneflow.engine.ops import array as rows
from oneflow.engine.ops.structure import layout


@spelled("parallel_cast")
def parallel_cast(
    x: Blob, name: str | None = None, distribute: Sbp | None = None, gradient_distribute: Sbp | None = None
) -> Blob:
    """The same value, laid out as ``distribute`` says, its gradient as ``gradient_distribute`` says; None leaves it
    open."""
    forward = _encoded("distribute", distribute)
    backward = _encoded("gradient_distribute", gradient_distribute)
    blob = apply(layout, x, forward=forward, backward=backward, name=name)
    change_op_note(blob.node, hint=distribute)
    return blob


def _encoded(what: str, value: Any) -> str:
    if value is None or value is AUTO:
        return format_layout(None)
    if not isinstance(value, Sbp):
        raise DTypeError(f"parallel_cast's {what} is flow.distribute.split/broadcast/auto, got {value!r}")
    return format_layout([value])


@spelled("hierarchical_parallel_cast")
def hierarchical_parallel_cast(
    x: Blob,
    parallel_distribution: Sequence[str] | None = None,
    grad_mode: str | None = None,
    grad_parallel_distribution: Sequence[str] | None = None,
    name: str | None = None,
) -> Blob:
    """``parallel_cast`` with one layout, "S(0)", "B" or "P", for each axis of the placement in force."""
    if grad_mode not in (None, "identity", "restore", "manual", "auto"):
        raise ArgumentError(f"grad_mode is 'identity', 'restore', 'manual' or 'auto', got {grad_mode!r}")
    blob_of("hierarchical_parallel_cast", x)
    placement = require_trace("flow.hierarchical_parallel_cast").placements[-1]
    forward = distribution("parallel_distribution", parallel_distribution, placement)
    backward = distribution("grad_parallel_distribution", grad_parallel_distribution, placement)
    return apply(layout, x, forward=format_layout(forward), backward=format_layout(backward), name=name)


def cast_to_current_logical_view(x: Blob, name: str | None = None) -> Blob:
    """The same value: blobs are whole in either view."""
    return apply(rows.identity, x, name=name)
