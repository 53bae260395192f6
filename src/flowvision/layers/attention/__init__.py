"""Layers that weigh channels and pixels."""

from flowvision.layers.attention.cbam import CbamModule, ChannelAttn, SpatialAttn
from flowvision.layers.attention.eca import EcaModule
from flowvision.layers.attention.se import SEModule

__all__ = ["CbamModule", "ChannelAttn", "EcaModule", "SEModule", "SpatialAttn"]
