"""TensorFlow's checkpoint files without TensorFlow."""

from __future__ import annotations

from flowvision.models.slim.checkpoint.reading import load_slim_checkpoint
from flowvision.models.slim.checkpoint.writing import save_slim_checkpoint

__all__ = ["load_slim_checkpoint", "save_slim_checkpoint"]
