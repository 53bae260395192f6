"""``flow.boxing``: how tensors go from layout to layout. Settings hold for graphs that are compiled afterwards; set
them before the first call, alike on every rank."""

from __future__ import annotations

from oneflow.boxing import nccl
from oneflow.engine.core.number import flag
from oneflow.engine.graph.fusion import FUSION

__all__ = ["enable_fusion", "nccl"]


def enable_fusion(val: bool = True) -> None:
    """Whether the gradients of a graph are summed over the ranks in buckets, as they are by default, or each by a call
    of its own."""
    FUSION.enable(flag("val", val))
