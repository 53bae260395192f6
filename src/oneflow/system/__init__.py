"""``flow.system``: ops with an effect beyond their result."""

from oneflow.array import assign

__all__ = ["assign"]
