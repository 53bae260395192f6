"""Layers that weigh channels and pixels."""

from flowvision.layers.attention.bam import BamChannelAttn, BAMModule, BamSpatialAttn
from flowvision.layers.attention.cbam import CbamModule, ChannelAttn, SpatialAttn
from flowvision.layers.attention.coordatt import CoordAttModule
from flowvision.layers.attention.eca import EcaModule
from flowvision.layers.attention.gct import GCTModule
from flowvision.layers.attention.global_context import GlobalContext
from flowvision.layers.attention.non_local_attn import NonLocalAttn
from flowvision.layers.attention.se import SEModule
from flowvision.layers.attention.sr_attention import SR_Attention

__all__ = [
    "BAMModule",
    "BamChannelAttn",
    "BamSpatialAttn",
    "CbamModule",
    "ChannelAttn",
    "CoordAttModule",
    "EcaModule",
    "GCTModule",
    "GlobalContext",
    "NonLocalAttn",
    "SEModule",
    "SR_Attention",
    "SpatialAttn",
]
