"""``flow.nn.modules.linear``: linear layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Identity, Linear, Module, Parameter, functional, init

from oneflow.engine.core.errors import ArgumentError

__all__ = ["FusedMLP", "Identity", "Linear"]


class FusedMLP(Module):
    """Linear layers with a ReLU and dropout behind each; behind the last no ReLU with ``skip_final_activation``.

    The parameters are ``weight_0``, ``bias_0``, ... ``hidden_dropout_rate`` has one rate per hidden layer.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: Sequence[int],
        out_features: int,
        hidden_dropout_rate: Sequence[float] | None = None,
        out_dropout_rate: float = 0.0,
        skip_final_activation: bool = False,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features, self.skip_final_activation = (
            in_features,
            out_features,
            skip_final_activation,
        )
        self.hidden_features = tuple(hidden_features)
        hidden = [0.0] * len(self.hidden_features) if hidden_dropout_rate is None else list(hidden_dropout_rate)
        if len(hidden) != len(self.hidden_features):
            raise ArgumentError(
                f"FusedMLP: hidden_dropout_rate has a rate for each of the {len(self.hidden_features)} hidden layers, "
                f"got {len(hidden)}"
            )
        self.dropout_rates = (*hidden, out_dropout_rate)
        if not all(0 <= rate <= 1 for rate in self.dropout_rates):
            raise ArgumentError(f"FusedMLP: a dropout rate is from 0 to 1, got {self.dropout_rates}")
        widths = (in_features, *self.hidden_features, out_features)
        for number, (width, next_width) in enumerate(zip(widths, widths[1:])):
            self.register_parameter(f"weight_{number}", Parameter(torch.empty(next_width, width)))
            self.register_parameter(f"bias_{number}", Parameter(torch.empty(next_width)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """First values as those of ``Linear``."""
        for number in range(len(self.dropout_rates)):
            weight = self.weight(number)
            init.kaiming_uniform_(weight, a=math.sqrt(5))
            bound = 1 / math.sqrt(weight.shape[1]) if weight.shape[1] else 0.0
            init.uniform_(self.bias(number), -bound, bound)

    def weight(self, number: int) -> Tensor:
        """The weight of one layer, (out, in)."""
        return getattr(self, f"weight_{number}")

    def bias(self, number: int) -> Tensor:
        """The bias of one layer."""
        return getattr(self, f"bias_{number}")

    def forward(self, x: Tensor) -> Tensor:
        """``x`` (..., in_features) through all layers."""
        last = len(self.dropout_rates) - 1
        for number, rate in enumerate(self.dropout_rates):
            x = functional.linear(x, self.weight(number), self.bias(number))
            if number < last or not self.skip_final_activation:
                x = functional.relu(x)
            x = functional.dropout(x, rate, self.training) if rate else x
        return x

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, hidden_features={self.hidden_features}, "
            f"out_features={self.out_features}, "
            f"skip_final_activation={self.skip_final_activation}"
        )
