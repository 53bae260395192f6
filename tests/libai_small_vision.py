"""LiBai's models of pictures as small as they work, with batches for them: what tests share, alone and on ranks."""

from __future__ import annotations

from typing import Any

import torch
from libai_small_models import Batch, Small

from libai import models

CLASSES = 5
_DROPS = {"drop_rate": 0.1, "attn_drop_rate": 0.1, "drop_path_rate": 0.1}
_SWIN: dict[str, Any] = {
    "img_size": 16,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 2],
    "num_heads": [2, 4],
    "window_size": 2,
    "num_classes": CLASSES,
    **_DROPS,
}


def _pictures(rows: int, draw: torch.Generator) -> Batch:
    return {
        "images": torch.randn(rows, 3, 16, 16, generator=draw),
        "labels": torch.randint(CLASSES, (rows,), generator=draw),
    }


SMALL_VISION: dict[str, Small] = {
    "ViT": Small(
        models.VisionTransformer,
        {
            "img_size": 16,
            "patch_size": 8,
            "embed_dim": 16,
            "depth": 2,
            "num_heads": 4,
            "num_classes": CLASSES,
            **_DROPS,
        },
        _pictures,
        ("labels",),
    ),
    "Swin": Small(models.SwinTransformer, _SWIN, _pictures, ("labels",), layers=3),
    "SwinV2": Small(
        models.SwinTransformerV2, {**_SWIN, "pretrained_window_sizes": [0, 0]}, _pictures, ("labels",), layers=3
    ),
    "ResMLP": Small(
        models.ResMLP,
        {
            "img_size": 16,
            "patch_size": 4,
            "embed_dim": 16,
            "depth": 2,
            "init_scale": 0.5,
            "num_classes": CLASSES,
            "drop_rate": 0.1,
            "drop_path_rate": 0.1,
        },
        _pictures,
        ("labels",),
    ),
}
