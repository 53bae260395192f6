"""Swin v2 tiny on ImageNet."""

from flowvision.data.mixup import Mixup
from flowvision.loss.cross_entropy import SoftTargetCrossEntropy
from libai.config import LazyCall

from .common.data.imagenet import dataloader
from .common.models.graph import graph  # noqa: F401
from .common.models.swinv2.swinv2_tiny_patch4_window8_256 import model
from .common.optim import optim
from .common.train import train

# Where the pictures lie: folders train/<class> and val/<class>.
dataloader.train.dataset[0].root = "/path/to/imagenet"
dataloader.test[0].dataset.root = "/path/to/imagenet"

# Its pictures are larger than those of the common data.
dataloader.train.dataset[0].transform.transforms[0].size = 256
dataloader.test[0].dataset.transform.transforms[0].size = 292
dataloader.test[0].dataset.transform.transforms[1].size = 256
model.cfg.num_classes = 1000
model.cfg.loss_func = LazyCall(SoftTargetCrossEntropy)()
dataloader.train.mixup_func = LazyCall(Mixup)(
    mixup_alpha=0.8,
    cutmix_alpha=1.0,
    prob=1.0,
    switch_prob=0.5,
    mode="batch",
    num_classes=model.cfg.num_classes,
)

optim.lr = 1e-3
optim.eps = 1e-8
optim.weight_decay = 0.05
optim.params.clip_grad_max_norm = 5.0
# Of parameters that are no matrices.
optim.params.overrides = {
    "logit_scale": {"weight_decay": 0.0},
    "q_bias": {"weight_decay": 0.0},
    "v_bias": {"weight_decay": 0.0},
}

train.train_micro_batch_size = 128
train.test_micro_batch_size = 128
train.train_epoch = 300
train.warmup_ratio = 20 / 300
train.evaluation.eval_period = 1000
train.log_period = 20
train.scheduler.warmup_factor = 0.001
train.scheduler.alpha = 0.01
train.scheduler.warmup_method = "linear"
train.amp.enabled = True
