"""What the Inception networks share: branches side by side, and their style."""

from __future__ import annotations

from collections.abc import Sequence

import oneflow as flow
import oneflow.nn.functional as F
from flowvision.models.slim.initializers import Initializer
from flowvision.models.slim.layers import Norm, Style
from flowvision.models.slim.network import EndPoints, Layers
from flowvision.models.slim.padding import SAME, Pair, avg_pool, max_pool, pair
from oneflow import Tensor

NORM = Norm(decay=0.9997, epsilon=0.001, scale=False)


class Step:
    """One layer of a branch."""

    def apply(self, layers: Layers, x: Tensor) -> Tensor:
        raise NotImplementedError


class Conv(Step):
    """A convolution; without ``scope`` it is called Conv2d_0<letter>_<kernel>."""

    def __init__(
        self,
        scope: str,
        channels: int,
        kernel: int | Pair = 1,
        stride: int = 1,
        padding: str = SAME,
        weights: Initializer | None = None,
    ) -> None:
        self.scope, self.channels, self.kernel, self.stride, self.padding, self.weights = (
            scope,
            channels,
            kernel,
            stride,
            padding,
            weights,
        )

    def apply(self, layers: Layers, x: Tensor) -> Tensor:
        style = layers.style.but(padding=self.padding)
        if self.weights is not None:
            style = style.but(weights=self.weights)
        return layers.conv(x, self.channels, self.kernel, self.scope, self.stride, style)


class Pool(Step):
    """A 3x3 pool."""

    def __init__(self, is_max: bool, stride: int = 1, padding: str = SAME) -> None:
        self.is_max, self.stride, self.padding = is_max, stride, padding

    def apply(self, layers: Layers, x: Tensor) -> Tensor:
        return (max_pool if self.is_max else avg_pool)(x, 3, self.stride, self.padding)


class Fork(Step):
    """Convolutions of one input, side by side."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps

    def apply(self, layers: Layers, x: Tensor) -> Tensor:
        return flow.cat([step.apply(layers, x) for step in self.steps], 1)


Branches = Sequence[Sequence[Step]]


def mixed(layers: Layers, x: Tensor, branches: Branches) -> Tensor:
    """The branches' results one behind the other, under Branch_0, Branch_1, ..."""
    results = []
    for number, steps in enumerate(branches):
        y = x
        with layers.scope(f"Branch_{number}"):
            for step in steps:
                y = step.apply(layers, y)
        results.append(y)
    return flow.cat(results, 1)


def chain(channels: Sequence[int], kernels: Sequence[int | Pair]) -> list[Step]:
    """Convolutions in a row with slim's usual names: Conv2d_0a_1x1, Conv2d_0b_3x3, ..."""
    names = [f"Conv2d_0{'abcde'[at]}_{pair(kernel)[0]}x{pair(kernel)[1]}" for at, kernel in enumerate(kernels)]
    return [Conv(name, count, kernel) for name, count, kernel in zip(names, channels, kernels)]


def pooled(is_max: bool, channels: int, weights: Initializer | None = None) -> list[Step]:
    """A pool and a 1x1 behind it: the last branch of most blocks."""
    return [Pool(is_max), Conv("Conv2d_0b_1x1", channels, weights=weights)]


def full_size(x: Tensor, limit: int | None = None) -> Pair:
    """The kernel that covers a whole map, or ``limit`` of it."""
    height, width = x.shape[2:]
    return (height, width) if limit is None else (min(limit, height), min(limit, width))


def linear(style: Style) -> Style:
    """Scores: neither norm nor activation."""
    return style.but(norm=None, activation=None)


def predicted(layers: Layers, logits: Tensor) -> tuple[Tensor, EndPoints]:
    layers.note("Logits", logits)
    layers.note("Predictions", F.softmax(logits, 1))
    return logits, layers.end_points


def squeezed(x: Tensor, squeezes: bool = True) -> Tensor:
    return x.flatten(1) if squeezes and tuple(x.shape[2:]) == (1, 1) else x
