"""``flow.nn.modules.upsampling``: larger pictures, torch's."""

from torch.nn import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]
