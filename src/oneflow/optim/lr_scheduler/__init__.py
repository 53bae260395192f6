"""``flow.optim.lr_scheduler``: rates by formulas of the step, in eager programs and in graphs."""

from oneflow.optim.lr_scheduler.base import LRScheduler
from oneflow.optim.lr_scheduler.composed import ChainedScheduler, SequentialLR, WarmUpLR
from oneflow.optim.lr_scheduler.decays import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CosineDecayLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from oneflow.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler  # the name that programs derive their own from
WarmupLR = WarmUpLR  # both spellings are in use

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CosineDecayLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "WarmUpLR",
    "WarmupLR",
]
