"""Swin tiny with heads of 24 channels, pictures of 256, windows of 8."""

from omegaconf import DictConfig

from libai.config import LazyCall
from libai.models import SwinTransformer

cfg = DictConfig(
    dict(
        img_size=256,
        patch_size=4,
        in_chans=3,
        num_classes=1000,
        embed_dim=96,
        depths=[2, 2, 6, 2],
        num_heads=[4, 8, 16, 32],
        window_size=8,
        mlp_ratio=4.0,
        qkv_bias=True,
        qk_scale=None,
        drop_rate=0.0,
        attn_drop_rate=0.0,
        drop_path_rate=0.2,
        ape=False,
        patch_norm=True,
        loss_func=None,
    ),
    flags={"allow_objects": True},
)

model = LazyCall(SwinTransformer)(cfg=cfg)
