"""How blobs lie over a placement. The values stay as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from oneflow.array._arguments import apply, blob_of, sequence_of
from oneflow.core.errors import ArgumentError, DTypeError, UnsupportedError
from oneflow.core.sbp import BROADCAST, PARTIAL, Sbp, split
from oneflow.ir.blob import Blob
from oneflow.ops import array as rows
from oneflow.ops.structure import layout

_SPLIT = re.compile(r"S\((\d+)\)")


def parallel_cast(x: Blob, distribute: Sbp | None = None, gradient_distribute: Sbp | None = None, name: str | None = None) -> Blob:
    """The same value, laid out as ``distribute`` says, its gradient as ``gradient_distribute`` says; None leaves it open."""
    blob = apply(layout, x, name=name)
    _set(blob, "sbp", "distribute", distribute)
    _set(blob, "gradient_sbp", "gradient_distribute", gradient_distribute)
    return blob


def _set(blob: Blob, key: str, what: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, Sbp):
        raise DTypeError(f"parallel_cast's {what} is flow.distribute.split/broadcast/auto, got {value!r}")
    blob.node.meta[key] = value


def hierarchical_parallel_cast(
    x: Blob,
    parallel_distribution: Sequence[str] | None = None,
    grad_mode: str | None = None,
    grad_parallel_distribution: Sequence[str] | None = None,
    name: str | None = None,
) -> Blob:
    """``parallel_cast`` with one layout, "S(0)", "B" or "P", for each axis of the placement.

    Over more than one device only placements of one axis are laid out.
    """
    if grad_mode not in (None, "identity", "restore", "manual", "auto"):
        raise ArgumentError(f"grad_mode is 'identity', 'restore', 'manual' or 'auto', got {grad_mode!r}")
    forward = _layouts("parallel_distribution", parallel_distribution)
    backward = _layouts("grad_parallel_distribution", grad_parallel_distribution)
    if blob_of("hierarchical_parallel_cast", x).parallel_size == 1:
        return apply(rows.identity, x, name=name)
    if max(len(forward), len(backward)) > 1:
        raise UnsupportedError(f"a blob on {x.placement} is laid out along one axis, got {parallel_distribution}")
    return parallel_cast(x, forward[0] if forward else None, backward[0] if backward else None, name)


def _layouts(what: str, value: Any) -> list[Sbp]:
    return [] if value is None else [_layout(what, text) for text in sequence_of(what, value)]


def _layout(what: str, text: Any) -> Sbp:
    if text in ("B", "P"):
        return BROADCAST if text == "B" else PARTIAL
    match = _SPLIT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ArgumentError(f"an entry of {what} is 'S(0)', 'S(1)' ..., 'B' or 'P', got {text!r}")
    return split(int(match[1]))


def cast_to_current_logical_view(x: Blob, name: str | None = None) -> Blob:
    """The same value: blobs are whole in either view."""
    return apply(rows.identity, x, name=name)
