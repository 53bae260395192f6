"""What training programs use around a network."""

from flowvision.utils.agc import adaptive_clip_grad
from flowvision.utils.clip_grad import dispatch_clip_grad
from flowvision.utils.metrics import AverageMeter, accuracy
from flowvision.utils.model_ema import ModelEmaV2
from flowvision.utils.vision_helpers import make_grid, save_image

ModelEma = ModelEmaV2  # the name of its first version

__all__ = ["AverageMeter", "ModelEma", "ModelEmaV2", "accuracy", "adaptive_clip_grad", "dispatch_clip_grad", "make_grid", "save_image"]
