"""slim's layers as modules. Their parameters have slim's names, so that a path in the state dict is a variable's name
with dots for slashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import oneflow as flow
import oneflow.nn as nn
import oneflow.nn.functional as F
from flowvision.models.slim.initializers import Fans, Initializer, constant, xavier
from flowvision.models.slim.padding import SAME, Pair, for_conv
from oneflow import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "relu6": F.relu6}


@dataclass(frozen=True)
class Norm:
    """Batch norm of a network: slim's decay is the complement of torch's momentum; ``scale`` asks for a gamma."""

    decay: float
    epsilon: float
    scale: bool


@dataclass(frozen=True)
class Style:
    """What the layers of a network share unless one says otherwise: slim's argument scope."""

    weights: Initializer = xavier()
    biases: Initializer = constant(0.0)
    norm: Norm | None = None  # with one a convolution has no biases
    activation: str | None = "relu"
    padding: str = SAME
    regularizes_weights: bool = True
    regularizes_biases: bool = False

    def but(self, **changes: Any) -> Style:
        return replace(self, **changes)


class Layer(nn.Module):
    """A module with variables of slim's. ``regularized`` names those that weight decay touches."""

    regularized: tuple[str, ...] = ()

    def reset_parameters(self) -> None:
        """Gives the layer's own variables their first values."""
        raise NotImplementedError

    def to_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        """A variable in TensorFlow's layout."""
        return value

    def from_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        """A variable of TensorFlow's layout in torch's."""
        return value


class BatchNorm(Layer):
    """Normalises by the batch's biased variance; the moving variance takes the unbiased one, as TensorFlow's fused op
    does."""

    moving_mean: Tensor
    moving_variance: Tensor

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        self.momentum, self.epsilon = 1 - norm.decay, norm.epsilon
        self.gamma = nn.Parameter(flow.empty(channels)) if norm.scale else None
        self.beta = nn.Parameter(flow.empty(channels))
        self.register_buffer("moving_mean", flow.empty(channels))
        self.register_buffer("moving_variance", flow.empty(channels))

    def reset_parameters(self) -> None:
        with flow.no_grad():
            self.beta.zero_()
            self.moving_mean.zero_()
            self.moving_variance.fill_(1)
            if self.gamma is not None:
                self.gamma.fill_(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.shape[1]:
            return self._of_one_value(x)
        return F.batch_norm(
            x, self.moving_mean, self.moving_variance, self.gamma, self.beta, self.training, self.momentum, self.epsilon
        )

    def _of_one_value(self, x: Tensor) -> Tensor:
        """A batch of one pixel is its own mean and varies by nothing, where torch refuses."""
        with flow.no_grad():
            self.moving_mean.lerp_(x.detach().flatten(), self.momentum)
            self.moving_variance.mul_(1 - self.momentum)
        return x * 0 + self.beta.view(1, -1, *[1] * (x.dim() - 2))


class _WithBiases(Layer):
    """What convolutions and full connections share: biases or batch norm, then the activation."""

    biases: Tensor | None

    def __init__(self, channels: int, style: Style) -> None:
        super().__init__()
        self.style = style
        self.BatchNorm = BatchNorm(channels, style.norm) if style.norm else None
        self.biases = None if style.norm else nn.Parameter(flow.empty(channels))

    def _finish(self, x: Tensor) -> Tensor:
        if self.BatchNorm is not None:
            x = self.BatchNorm(x)
        return ACTIVATIONS[self.style.activation](x) if self.style.activation else x

    def _reset_biases(self) -> None:
        if self.biases is not None:
            self.style.biases(self.biases, (1, 1))

    def _regularized(self, *weights: str) -> tuple[str, ...]:
        biases = ("biases",) if self.style.regularizes_biases and self.biases is not None else ()
        return (weights if self.style.regularizes_weights else ()) + biases


class Conv(_WithBiases):
    """``slim.conv2d``: weights [kh, kw, in, out] there, (out, in, kh, kw) here."""

    def __init__(
        self, in_channels: int, channels: int, kernel: Pair, stride: Pair, dilation: int, has_biases: bool, style: Style
    ) -> None:
        super().__init__(channels, style)
        if not has_biases:
            self.biases = None
        self.stride, self.dilation = stride, dilation
        self.weights = nn.Parameter(flow.empty(channels, in_channels, *kernel))
        self.regularized = self._regularized("weights")

    def reset_parameters(self) -> None:
        out, into, *kernel = self.weights.shape
        area = kernel[0] * kernel[1]
        self.style.weights(self.weights, (area * into, area * out))
        self._reset_biases()

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weights.shape[2], self.weights.shape[3]
        x, padding = for_conv(x, kernel, self.stride, self.style.padding, self.dilation)
        return self._finish(F.conv2d(x, self.weights, self.biases, self.stride, padding, self.dilation))

    def to_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        return value.transpose(2, 3, 1, 0) if name == "weights" else value

    def from_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        return value.transpose(3, 2, 0, 1) if name == "weights" else value


class SeparableConv(_WithBiases):
    """``slim.separable_conv2d``: every channel by itself, then, unless ``channels`` is None, a 1x1 over all; one norm
    and activation after both."""

    def __init__(
        self,
        in_channels: int,
        channels: int | None,
        kernel: Pair,
        multiplier: int,
        stride: Pair,
        has_biases: bool,
        style: Style,
    ) -> None:
        middle = in_channels * multiplier
        super().__init__(channels or middle, style)
        if not has_biases:
            self.biases = None
        self.stride, self.in_channels, self.multiplier = stride, in_channels, multiplier
        self.depthwise_weights = nn.Parameter(flow.empty(middle, 1, *kernel))
        self.pointwise_weights = nn.Parameter(flow.empty(channels, middle, 1, 1)) if channels else None
        self.regularized = self._regularized("depthwise_weights", *(("pointwise_weights",) if channels else ()))

    def reset_parameters(self) -> None:
        area = self.depthwise_weights.shape[2] * self.depthwise_weights.shape[3]
        self.style.weights(self.depthwise_weights, (area * self.in_channels, area * self.multiplier))
        if self.pointwise_weights is not None:
            out, into = self.pointwise_weights.shape[:2]
            self.style.weights(self.pointwise_weights, (into, out))
        self._reset_biases()

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.depthwise_weights.shape[2], self.depthwise_weights.shape[3]
        x, padding = for_conv(x, kernel, self.stride, self.style.padding, 1)
        biases = self.biases if self.pointwise_weights is None else None
        x = F.conv2d(x, self.depthwise_weights, biases, self.stride, padding, groups=self.in_channels)
        if self.pointwise_weights is not None:
            x = F.conv2d(x, self.pointwise_weights, self.biases)
        return self._finish(x)

    def to_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        if name == "depthwise_weights":
            return value.reshape(self.in_channels, self.multiplier, *value.shape[2:]).transpose(2, 3, 0, 1)
        return value.transpose(2, 3, 1, 0) if name == "pointwise_weights" else value

    def from_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        if name == "depthwise_weights":
            return value.transpose(2, 3, 0, 1).reshape(-1, 1, *value.shape[:2])
        return value.transpose(3, 2, 0, 1) if name == "pointwise_weights" else value


class Dense(_WithBiases):
    """``slim.fully_connected``: weights [in, out] there, (out, in) here."""

    def __init__(self, in_features: int, features: int, style: Style) -> None:
        super().__init__(features, style)
        self.weights = nn.Parameter(flow.empty(features, in_features))
        self.regularized = self._regularized("weights")

    def reset_parameters(self) -> None:
        out, into = self.weights.shape
        fans: Fans = into, out
        self.style.weights(self.weights, fans)
        self._reset_biases()

    def forward(self, x: Tensor) -> Tensor:
        return self._finish(F.linear(x, self.weights, self.biases))

    def to_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        return value.T if name == "weights" else value

    def from_slim(self, name: str, value: np.ndarray) -> np.ndarray:
        return value.T if name == "weights" else value


def flat(x: Tensor) -> Tensor:
    """(batch, features) in the order of TensorFlow's flatten: height, width, channels."""
    return x.permute(0, 2, 3, 1).flatten(1)
