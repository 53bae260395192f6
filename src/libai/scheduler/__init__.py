"""Learning rates with a warm-up, as formulas of the iteration."""

from libai.scheduler.build import build_lr_scheduler
from libai.scheduler.lr_scheduler import (
    WarmupCosineAnnealingLR,
    WarmupCosineLR,
    WarmupExponentialLR,
    WarmupMultiStepLR,
    WarmupPolynomialLR,
    WarmupStepLR,
)

__all__ = [
    "WarmupCosineAnnealingLR",
    "WarmupCosineLR",
    "WarmupExponentialLR",
    "WarmupMultiStepLR",
    "WarmupPolynomialLR",
    "WarmupStepLR",
    "build_lr_scheduler",
]
