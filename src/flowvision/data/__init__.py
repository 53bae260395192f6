"""Augmentations of pictures and batches for training."""

from flowvision.data.auto_augment import (
    AugMixAugment,
    AutoAugment,
    RandAugment,
    augment_and_mix_transform,
    auto_augment_transform,
    rand_augment_transform,
)
from flowvision.data.constants import (
    DEFAULT_CROP_PCT,
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    IMAGENET_INCEPTION_MEAN,
    IMAGENET_INCEPTION_STD,
)
from flowvision.data.mixup import Mixup
from flowvision.data.random_erasing import RandomErasing
from flowvision.data.transforms_factory import create_transform
from flowvision.transforms.interpolation import str_to_interp_mode, str_to_pil_interp

__all__ = [
    "AugMixAugment",
    "AutoAugment",
    "DEFAULT_CROP_PCT",
    "IMAGENET_DEFAULT_MEAN",
    "IMAGENET_DEFAULT_STD",
    "IMAGENET_INCEPTION_MEAN",
    "IMAGENET_INCEPTION_STD",
    "Mixup",
    "RandAugment",
    "RandomErasing",
    "augment_and_mix_transform",
    "auto_augment_transform",
    "create_transform",
    "rand_augment_transform",
    "str_to_interp_mode",
    "str_to_pil_interp",
]
