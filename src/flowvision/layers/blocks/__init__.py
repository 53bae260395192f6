"""Blocks that networks share."""

from flowvision.layers.blocks.conv2d_same import Conv2dSame, conv2d_same, create_conv2d_pad
from flowvision.layers.blocks.conv_bn_act import ConvBnAct
from flowvision.layers.blocks.focal_loss import sigmoid_focal_loss
from flowvision.layers.blocks.giou_loss import generalized_box_iou_loss
from flowvision.layers.blocks.misc import FrozenBatchNorm2d
from flowvision.layers.blocks.mlp import ConvMlp, GatedMlp, GluMlp, Mlp
from flowvision.layers.blocks.padding import get_padding, get_same_padding, is_static_pad, pad_same
from flowvision.layers.blocks.patch_embed import PatchEmbed, to_2tuple
from oneflow.compat.absent_modules import refuse as _refuse

__all__ = [
    "Conv2dSame",
    "ConvBnAct",
    "ConvMlp",
    "FrozenBatchNorm2d",
    "GatedMlp",
    "GluMlp",
    "Mlp",
    "PatchEmbed",
    "conv2d_same",
    "create_conv2d_pad",
    "generalized_box_iou_loss",
    "get_padding",
    "get_same_padding",
    "is_static_pad",
    "pad_same",
    "sigmoid_focal_loss",
    "to_2tuple",
]

_refuse(
    __name__,
    dict.fromkeys(
        ("feature_pyramid_network", "poolers", "roi_align", "_utils"),
        "layers of detection networks are torchvision's, and run in graphs as they are",
    ),
)
