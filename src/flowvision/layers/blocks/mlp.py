"""Two full connections with an activation between, and their gated and convolutional forms."""

from __future__ import annotations

from collections.abc import Callable

import oneflow.nn as nn
from oneflow import Tensor

Make = Callable[[], nn.Module]


class Mlp(nn.Module):
    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: Make = nn.GELU,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = hidden_features or in_features
        self.fc1 = nn.Linear(in_features, hidden)
        self.act = act_layer()
        self.drop1 = nn.Dropout(drop)
        self.fc2 = nn.Linear(hidden, out_features or in_features)
        self.drop2 = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.drop1(self.act(self.fc1(x)))))


class GluMlp(nn.Module):
    """Half of the hidden features, activated, weigh the other half."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: Make = nn.Sigmoid,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = hidden_features or in_features
        self.fc1 = nn.Linear(in_features, hidden)
        self.act = act_layer()
        self.fc2 = nn.Linear(hidden // 2, out_features or in_features)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        values, gates = self.fc1(x).chunk(2, dim=-1)
        return self.drop(self.fc2(self.drop(values * self.act(gates))))


class GatedMlp(nn.Module):
    """As in gMLP: ``gate_layer`` makes of the hidden features half as many."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: Make = nn.GELU,
        gate_layer: Callable[[int], nn.Module] | None = None,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = hidden_features or in_features
        self.fc1 = nn.Linear(in_features, hidden)
        self.act = act_layer()
        self.drop1 = nn.Dropout(drop)
        self.gate = gate_layer(hidden) if gate_layer else nn.Identity()
        self.fc2 = nn.Linear(hidden // 2 if gate_layer else hidden, out_features or in_features)
        self.drop2 = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop2(self.fc2(self.gate(self.drop1(self.act(self.fc1(x))))))


class ConvMlp(nn.Module):
    """The same over the channels of each pixel, by 1x1 convolutions."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: Make = nn.ReLU,
        norm_layer: Callable[[int], nn.Module] | None = None,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = hidden_features or in_features
        self.fc1 = nn.Conv2d(in_features, hidden, 1)
        self.norm = norm_layer(hidden) if norm_layer else nn.Identity()
        self.act = act_layer()
        self.drop = nn.Dropout(drop)
        self.fc2 = nn.Conv2d(hidden, out_features or in_features, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.drop(self.act(self.norm(self.fc1(x)))))
