"""``flow.utils``: data sets and loaders of tensors, activation checkpointing, and structures of global tensors."""

from oneflow.utils import checkpoint, data, global_view

__all__ = ["checkpoint", "data", "global_view"]
