"""Samples of ``oneflow.engine.ops.image``."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample

from oneflow import image


def pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, shape, dtype=np.uint8)


def normalised(x: torch.Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> torch.Tensor:
    return (x.float() - torch.tensor(mean)) / torch.tensor(std)


X = pictures(3, 7, 9, 3)
GREY = pictures(2, 4, 5, 1)
MEAN, STD = (123.0, 117.0, 104.0), (58.0, 57.0, 56.0)
WHICH = np.array([1, 0, 1], np.int8)

SAMPLES = [
    Sample(
        "image.crop_normalize", lambda x: image.CropMirrorNormalize(x), (X,), lambda x: x.float().permute(0, 3, 1, 2)
    ),
    Sample(
        "image.crop_normalize",
        lambda x: image.CropMirrorNormalize(x, crop_h=4, crop_w=5, mean=MEAN, std=STD, output_layout="NHWC"),
        (X,),
        lambda x: normalised(x[:, 1:5, 2:7], MEAN, STD),
    ),
    Sample(
        "image.crop_normalize",
        lambda x: image.crop_mirror_normalize(
            x, color_space="GRAY", crop_h=3, crop_w=3, crop_pos_y=0.0, crop_pos_x=1.0, mean=[10.0]
        ),
        (GREY,),
        lambda x: x[:, 0:3, 2:5].float().permute(0, 3, 1, 2) - 10,
    ),
    Sample(
        "image.mirror",
        lambda x, which: image.CropMirrorNormalize(x, which, mean=[1.0], std=[2.0]),
        (X, WHICH),
        lambda x, which: torch.stack([x[0].flip(1), x[1], x[2].flip(1)]).float().sub(1).div(2).permute(0, 3, 1, 2),
    ),
    Sample(
        "image.mirror",
        lambda x, which: image.CropMirrorNormalize(x, which, output_layout="NHWC"),
        (X, WHICH),
        lambda x, which: torch.stack([x[0].flip(1), x[1], x[2].flip(1)]).float(),
    ),
]
