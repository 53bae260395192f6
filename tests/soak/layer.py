"""What a row of the tables of layers is, and modules that several rows are built from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
"""The shape of one sample, without the batch."""
Make = Callable[[Shape, Random], nn.Module]
WIDTHS = (4, 6, 8)


class Kind(IntEnum):
    """The kind of a tensor; the number is the number of dims of one sample."""

    VECTOR = 1
    """(features,)"""
    SEQUENCE = 2
    """(length, features)"""
    IMAGE = 3
    """(channels, height, width)"""
    VOLUME = 4
    """(channels, depth, height, width)"""


@dataclass(frozen=True)
class Layer:
    """One kind of layer.

    Attributes:
        name: The name of the row, unique over all tables.
        takes: The kind of the input.
        gives: The kind of the output.
        make: Builds the module for samples of a shape, with options drawn from a generator.
        fits: Whether samples of a shape can be the input.
        is_sharp: Whether the result or its gradient depends on the order of equal values, as that of sort does.
        makes_ties: Whether different elements of the output may be equal, as after relu.
        shrinks: Whether the output is small, however large the input is.
    """

    name: str
    takes: Kind
    gives: Kind
    make: Make
    fits: Callable[[Shape], bool] = lambda shape: True
    is_sharp: bool = False
    makes_ties: bool = False
    shrinks: bool = False


class Apply(nn.Module):
    """A function of tensors as a layer without parameters."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Combine(nn.Module):
    """A function of the input and of a module, such as a residual connection."""

    def __init__(self, module: nn.Module, function: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.module, x)


class Weighted(nn.Module):
    """A function of the input and of a parameter of a given shape."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], *shape: int) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(shape) * 0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


class Skip(nn.Module):
    """Adds an earlier value of the same shape."""

    def __init__(self, position: int) -> None:
        super().__init__()
        self.position = position

    def forward(self, x: Tensor, values: list[Tensor]) -> Tensor:
        return x + torch.tanh(values[self.position])


def apply(function: Callable[[Tensor], Tensor]) -> Make:
    """Returns the ``make`` of a layer without parameters and options."""
    return lambda shape, draw: Apply(function)


def apply_one_of(*functions: Callable[[Tensor], Tensor]) -> Make:
    """Returns the ``make`` of a layer that applies one of several functions."""
    return lambda shape, draw: Apply(draw.choice(functions))


def rows(kind: Kind, *entries: Any) -> list[Layer]:
    """Returns the layers of a table whose rows take one kind of input.

    Args:
        kind: The kind that all rows take, and give unless they say otherwise.
        entries: ``(name, make)`` or ``(name, make, options)`` where options are further fields of ``Layer``.
    """
    result = []
    for name, make, *options in entries:
        fields = dict(options[0]) if options else {}
        result.append(Layer(f"{kind.name.lower()}.{name}", kind, fields.pop("gives", kind), make, **fields))
    return result


def by_name(layers: Iterable[Layer]) -> dict[str, Layer]:
    """Returns the layers by their names."""
    table: dict[str, Layer] = {}
    for layer in layers:
        if layer.name in table:
            raise ValueError(f"two rows are named {layer.name}; give each row its own name")
        table[layer.name] = layer
    return table


def one_group_of(channels: int, draw: Random) -> int:
    """Draws a number of groups that divides the channels."""
    return draw.choice([groups for groups in (1, 2, 3, 4) if channels % groups == 0])
