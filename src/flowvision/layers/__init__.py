"""Layers that networks for pictures share: attention, blocks, regularisation, first values."""

from flowvision.layers.activation import hard_sigmoid, hard_swish
from flowvision.layers.attention import (
    BamChannelAttn,
    BAMModule,
    BamSpatialAttn,
    CbamModule,
    ChannelAttn,
    CoordAttModule,
    EcaModule,
    GCTModule,
    GlobalContext,
    NonLocalAttn,
    SEModule,
    SpatialAttn,
    SR_Attention,
)
from flowvision.layers.blocks import Conv2dSame, ConvBnAct, ConvMlp, GatedMlp, GluMlp, Mlp, PatchEmbed, conv2d_same
from flowvision.layers.dynamic_conv import Dynamic_conv2d, attention2d
from flowvision.layers.helpers import make_divisible
from flowvision.layers.regularization import (
    DropBlock,
    DropPath,
    LayerNorm2d,
    StochasticDepth,
    drop_path,
    stochastic_depth,
)
from flowvision.layers.weight_init import lecun_normal_, trunc_normal_, variance_scaling_

__all__ = [
    "BAMModule",
    "BamChannelAttn",
    "BamSpatialAttn",
    "CbamModule",
    "ChannelAttn",
    "Conv2dSame",
    "ConvBnAct",
    "ConvMlp",
    "CoordAttModule",
    "DropBlock",
    "DropPath",
    "Dynamic_conv2d",
    "EcaModule",
    "GCTModule",
    "GatedMlp",
    "GlobalContext",
    "GluMlp",
    "LayerNorm2d",
    "Mlp",
    "NonLocalAttn",
    "PatchEmbed",
    "SEModule",
    "SR_Attention",
    "SpatialAttn",
    "StochasticDepth",
    "attention2d",
    "conv2d_same",
    "drop_path",
    "hard_sigmoid",
    "hard_swish",
    "lecun_normal_",
    "make_divisible",
    "stochastic_depth",
    "trunc_normal_",
    "variance_scaling_",
]
