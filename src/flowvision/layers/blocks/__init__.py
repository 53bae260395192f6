"""Blocks that networks share."""

from flowvision.layers.blocks.conv2d_same import Conv2dSame, conv2d_same
from flowvision.layers.blocks.conv_bn_act import ConvBnAct
from flowvision.layers.blocks.mlp import ConvMlp, GatedMlp, GluMlp, Mlp
from flowvision.layers.blocks.padding import get_padding, get_same_padding, is_static_pad, pad_same
from flowvision.layers.blocks.patch_embed import PatchEmbed, to_2tuple

__all__ = [
    "Conv2dSame",
    "ConvBnAct",
    "ConvMlp",
    "GatedMlp",
    "GluMlp",
    "Mlp",
    "PatchEmbed",
    "conv2d_same",
    "get_padding",
    "get_same_padding",
    "is_static_pad",
    "pad_same",
    "to_2tuple",
]
