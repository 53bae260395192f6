"""``flow.layers``: ops that make their own variables, named after the layer."""

from oneflow.layers._conv import conv1d, conv2d, conv3d
from oneflow.layers._dense import dense, prelu, upsample_2d
from oneflow.layers._norm import batch_normalization, batch_normalization_add_relu, batch_normalization_relu, layer_norm

__all__ = [
    "batch_normalization",
    "batch_normalization_add_relu",
    "batch_normalization_relu",
    "conv1d",
    "conv2d",
    "conv3d",
    "dense",
    "layer_norm",
    "prelu",
    "upsample_2d",
]
