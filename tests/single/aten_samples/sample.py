"""What a sample of an aten op is, and short names for its tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


@dataclass(frozen=True)
class AtenSample:
    """A call of an overload for a batch of n. ``fixed`` says that its shapes or arguments do not let the batch change.

    ``results`` are the numbers of the results that are compared, None for all. ``expect`` stands for an op that this
    machine cannot run.
    """

    name: str
    make: Callable[[int], Call]
    fixed: bool = False
    results: tuple[int, ...] | None = None
    expect: Callable[..., Any] | None = None
    opset: int | None = None
    tolerance: float = 1e-5

    def compute(self, made: Call) -> Any:
        """What torch gives."""
        if self.expect is not None:
            return self.expect(*made.args, **made.kwargs)
        packet, overload = self.name.split(".")
        return getattr(getattr(torch.ops.aten, packet), overload)(*made.args, **made.kwargs)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def rand(*shape: int, low: float = 0.1, high: float = 0.9) -> torch.Tensor:
    return torch.rand(shape) * (high - low) + low


def ints(*shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape).to(dtype)


def bools(*shape: int) -> torch.Tensor:
    return torch.rand(shape) > 0.5
