"""Activations by name."""

from __future__ import annotations

from enum import Enum
from typing import Any

import torch
import torch.nn.functional as F

from oneflow import nn
from oneflow.engine.core.errors import ArgumentError, nearest


class Activation(str, Enum):
    """The names that :func:`build_activation` takes."""

    SquaredReLU = "squared_relu"
    GeLU = "gelu"
    GeLUTanh = "gelu_tanh"
    LeakyReLU = "leaky_relu"
    ReLU = "relu"
    Tanh = "tanh"
    QuickGELU = "quick_gelu"


class SquaredReLU(nn.Module):
    """relu(x)²."""

    def forward(self, x: Any) -> Any:
        return F.relu(x).square()


class Passthrough(nn.Module):
    """x."""

    def forward(self, x: Any) -> Any:
        return x


class GeLUTanh(nn.Module):
    """GELU by its tanh approximation."""

    def forward(self, x: Any) -> Any:
        return F.gelu(x, approximate="tanh")


class QuickGELU(nn.Module):
    """x sigmoid(1.702 x)."""

    def forward(self, x: Any) -> Any:
        return x * torch.sigmoid(1.702 * x)


_MODULES: dict[Activation, type[nn.Module]] = {
    Activation.ReLU: nn.ReLU,
    Activation.GeLU: nn.GELU,
    Activation.GeLUTanh: GeLUTanh,
    Activation.LeakyReLU: nn.LeakyReLU,
    Activation.SquaredReLU: SquaredReLU,
    Activation.Tanh: nn.Tanh,
    Activation.QuickGELU: QuickGELU,
}


def build_activation(activation: str | Activation | None) -> nn.Module:
    """The module of an activation; None is the identity."""
    if not activation:
        return Passthrough()
    known = [one.value for one in Activation]
    if activation not in known:
        raise ActivationError(
            f"activation is one of {', '.join(known)} or None, got {activation!r}.{nearest(str(activation), known)}"
        )
    return _MODULES[Activation(activation)]()


class ActivationError(ArgumentError, KeyError):
    """An activation that there is not."""

    def __str__(self) -> str:
        return str(self.args[0])
