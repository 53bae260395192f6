"""Schedules of learning rates for optimizers of tensors, stepped by epoch or by update."""

from flowvision.scheduler.cosine_lr import CosineLRScheduler
from flowvision.scheduler.linear_lr import LinearLRScheduler
from flowvision.scheduler.multistep_lr import MultiStepLRScheduler
from flowvision.scheduler.poly_lr import PolyLRScheduler
from flowvision.scheduler.scheduler import Scheduler
from flowvision.scheduler.step_lr import StepLRScheduler
from flowvision.scheduler.tanh_lr import TanhLRScheduler

__all__ = [
    "CosineLRScheduler",
    "LinearLRScheduler",
    "MultiStepLRScheduler",
    "PolyLRScheduler",
    "Scheduler",
    "StepLRScheduler",
    "TanhLRScheduler",
]
