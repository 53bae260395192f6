"""The 32 image classifiers of TensorFlow's slim library, to the last variable: ``slim.create_model("resnet_v1_50")``;
its checkpoints without TensorFlow."""

from __future__ import annotations

from flowvision.models.slim.checkpoint import load_slim_checkpoint, save_slim_checkpoint
from flowvision.models.slim.create import create_model, list_models
from flowvision.models.slim.network import SlimNetwork

__all__ = ["SlimNetwork", "create_model", "list_models", "load_slim_checkpoint", "save_slim_checkpoint"]
