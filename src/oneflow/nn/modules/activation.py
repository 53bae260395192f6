"""``flow.nn.modules.activation``: activations as modules."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    Mish,
    Module,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softplus,
    Tanh,
    Threshold,
    functional,
)

from oneflow.nn.functional import log_softmax, quick_gelu, softmax

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "QuickGELU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Threshold",
]


class Softmax(torch.nn.Softmax):
    """Softmax over ``dim``, the last if none is given."""

    def forward(self, input: Tensor) -> Tensor:
        return softmax(input, self.dim)


class LogSoftmax(torch.nn.LogSoftmax):
    """log(softmax) over ``dim``, the last if none is given."""

    def forward(self, input: Tensor) -> Tensor:
        return log_softmax(input, self.dim)


class Hardshrink(torch.nn.Hardshrink):
    """x where |x| > ``lambd``, else 0; with ``inplace`` written over x."""

    def __init__(self, lambd: float = 0.5, inplace: bool = False) -> None:
        super().__init__(lambd)
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return _written(input, functional.hardshrink(_kept(input, self.inplace), self.lambd), self.inplace)


class Softshrink(torch.nn.Softshrink):
    """x moved towards 0 by ``lambd``, 0 where it would pass it; with ``inplace`` written over x."""

    def __init__(self, lambd: float = 0.5, inplace: bool = False) -> None:
        super().__init__(lambd)
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return _written(input, functional.softshrink(_kept(input, self.inplace), self.lambd), self.inplace)


class Softsign(torch.nn.Softsign):
    """x / (1 + |x|); with ``inplace`` written over x."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return _written(input, functional.softsign(_kept(input, self.inplace)), self.inplace)


def _kept(x: Tensor, inplace: bool) -> Tensor:
    """What the gradient remembers: a copy where x itself is about to be written over."""
    return x.clone() if inplace and torch.is_grad_enabled() and x.requires_grad else x


def _written(x: Tensor, result: Tensor, inplace: bool) -> Tensor:
    return x.copy_(result) if inplace else result


class QuickGELU(Module):
    """x · sigmoid(1.702 · x)."""

    def forward(self, x: Tensor) -> Tensor:
        return quick_gelu(x)
