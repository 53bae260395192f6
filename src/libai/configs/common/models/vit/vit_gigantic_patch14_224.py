"""ViT gigantic, pictures of 224, patches of 14."""

from omegaconf import DictConfig

from libai.config import LazyCall
from libai.models import VisionTransformer

cfg = DictConfig(
    dict(
        img_size=224,
        patch_size=14,
        in_chans=3,
        embed_dim=1664,
        depth=48,
        num_heads=16,
        mlp_ratio=64 / 13,
        drop_rate=0.0,
        attn_drop_rate=0.0,
        drop_path_rate=0.0,
        num_classes=1000,
        loss_func=None,
    ),
    flags={"allow_objects": True},
)

model = LazyCall(VisionTransformer)(cfg=cfg)
