"""``flow.utils``: data sets and loaders of tensors, and activation checkpointing."""

from oneflow.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
