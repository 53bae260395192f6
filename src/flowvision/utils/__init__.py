"""What training programs use around a network."""

from flowvision.utils.agc import adaptive_clip_grad
from flowvision.utils.base_registry import Registry
from flowvision.utils.clip_grad import dispatch_clip_grad
from flowvision.utils.metrics import AverageMeter, accuracy
from flowvision.utils.model_ema import ModelEmaV2
from flowvision.utils.vision_helpers import make_grid, save_image
from oneflow.compat.absent_modules import refuse as _refuse

ModelEma = ModelEmaV2  # the name of its first version

__all__ = [
    "AverageMeter",
    "ModelEma",
    "ModelEmaV2",
    "Registry",
    "accuracy",
    "adaptive_clip_grad",
    "dispatch_clip_grad",
    "make_grid",
    "save_image",
]

_refuse(
    __name__,
    {
        "utils": "pictures with boxes are drawn by PIL.ImageDraw",
        "layer_registry": "layers are imported from flowvision.layers; flowvision.utils.Registry keeps one's own",
    },
)
