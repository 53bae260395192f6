"""ResMLP of 24 layers."""

from omegaconf import DictConfig

from libai.config import LazyCall
from libai.models import ResMLP

cfg = DictConfig(
    dict(
        img_size=224,
        patch_size=16,
        in_chans=3,
        embed_dim=384,
        depth=24,
        drop_rate=0.0,
        drop_path_rate=0.05,
        init_scale=1e-5,
        num_classes=1000,
        loss_func=None,
    ),
    flags={"allow_objects": True},
)

model = LazyCall(ResMLP)(cfg=cfg)
