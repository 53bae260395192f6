"""``flow.sbp``: how a global tensor lies along an axis of its placement. Split in slices of a dim, broadcast whole, or
a partial sum."""

from oneflow.engine.global_tensor.sbp import broadcast, partial_sum, sbp, split

__all__ = ["broadcast", "partial_sum", "sbp", "split"]
