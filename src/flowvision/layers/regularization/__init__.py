"""Layers that regularise: drop-path, stochastic depth, DropBlock, and a norm."""

from flowvision.layers.regularization.dropblock import DropBlock
from flowvision.layers.regularization.droppath import DropPath, drop_path
from flowvision.layers.regularization.norm import LayerNorm2d
from flowvision.layers.regularization.stochastic_depth import StochasticDepth, stochastic_depth

__all__ = ["DropBlock", "DropPath", "LayerNorm2d", "StochasticDepth", "drop_path", "stochastic_depth"]
