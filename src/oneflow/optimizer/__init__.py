"""``flow.optimizer``: optimizers, learning-rate schedules, warm-up, clipping and loss scaling."""

from oneflow.optimizer import grad_clipping, loss_scale, warmup
from oneflow.optimizer.optimizers import (
    LAMB,
    LARS,
    SGD,
    SGDW,
    Adam,
    AdamW,
    CombinedOptimizer,
    LazyAdam,
    Optimizer,
    RMSProp,
)
from oneflow.optimizer.schedule import (
    ConstantScheduler,
    CosineScheduler,
    CustomScheduler,
    ExponentialScheduler,
    InverseTimeScheduler,
    LinearCosineScheduler,
    LrScheduler,
    NaturalExpScheduler,
    PiecewiseConstantScheduler,
    PiecewiseScalingScheduler,
    PolynomialScheduler,
)

PolynomialSchduler = PolynomialScheduler  # the spelling that programs of 2020 use

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "SGDW",
    "Adam",
    "AdamW",
    "CombinedOptimizer",
    "ConstantScheduler",
    "CosineScheduler",
    "CustomScheduler",
    "ExponentialScheduler",
    "InverseTimeScheduler",
    "LazyAdam",
    "LinearCosineScheduler",
    "LrScheduler",
    "NaturalExpScheduler",
    "Optimizer",
    "PiecewiseConstantScheduler",
    "PiecewiseScalingScheduler",
    "PolynomialSchduler",
    "PolynomialScheduler",
    "RMSProp",
    "grad_clipping",
    "loss_scale",
    "warmup",
]
