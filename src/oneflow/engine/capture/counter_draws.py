"""Random ops of torch, drawn by counter: what they give is a function of (seed, step, number of the op, index), as in
jobs.

So a run that was resumed draws what one that was never stopped does, and no rank, thread or earlier draw can change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, log1p, pi
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.ops.kernels import counter_random

aten = torch.ops.aten
_TINY = 2.0**-25  # half of the smallest difference between two uniform values


_BY_GENERATOR = {
    aten.rand.generator: aten.rand.default,
    aten.rand_like.generator: aten.rand_like.default,
    aten.randn.generator: aten.randn.default,
    aten.randn_like.generator: aten.randn_like.default,
    aten.randint.generator: aten.randint.default,
    aten.randint.low_generator: aten.randint.low,
    aten.randint_like.generator: aten.randint_like.default,
    aten.randint_like.low_generator_dtype: aten.randint_like.low_dtype,
    aten.randperm.generator: aten.randperm.default,
}
"""Ops that take a generator, and those that draw the same without one: a generator has no part in a graph."""


class Draws:
    """Decompositions of random aten ops for one trace. ``step`` is the number of the step, which the trace sets."""

    def __init__(self, seed: int) -> None:
        self.step: Tensor | None = None
        self._seed = seed
        self._count = 0
        self.table: dict[Any, Callable[..., Any]] = {
            aten.bernoulli.default: lambda p, generator=None: self._below(p).to(p.dtype),
            aten.bernoulli.p: lambda x, p=0.5, generator=None: self._kept(x.shape, p).to(x.dtype),
            aten.bernoulli_.float: lambda x, p=0.5, generator=None: x.copy_(self._kept(x.shape, p)),
            aten.bernoulli_.Tensor: lambda x, p, generator=None: x.copy_(self._below(p.expand_as(x))),
            aten.native_dropout.default: self._native_dropout,
            aten.rand.default: self._uniform,
            aten.rand_like.default: lambda x, **options: self._uniform(x.shape, **_like(x, options)),
            aten.randn.default: self._normal,
            aten.randn_like.default: lambda x, **options: self._normal(x.shape, **_like(x, options)),
            aten.randint.default: lambda high, size, **options: self._integers(0, high, size, **options),
            aten.randint.low: self._integers,
            aten.randint_like.default: lambda x, high, **options: self._integers(0, high, x.shape, **_like(x, options)),
            aten.randint_like.low_dtype: lambda x, low, high, **options: self._integers(
                low, high, x.shape, **_like(x, options)
            ),
            aten.random_.to: lambda x, to, generator=None: x.copy_(self._integers(0, to, x.shape)),
            getattr(aten.random_, "from"): lambda x, low, to, generator=None: x.copy_(self._integers(low, to, x.shape)),
            aten.randperm.default: self._permutation,
            aten.uniform_.default: lambda x, low=0.0, high=1.0, generator=None: x.copy_(
                self._bits_uniform(x.shape) * (high - low) + low
            ),
            aten.normal_.default: lambda x, mean=0.0, std=1.0, generator=None: x.copy_(
                self._bits_normal(x.shape) * std + mean
            ),
            aten.normal.Tensor_Tensor: lambda mean, std, generator=None: (
                self._bits_normal(mean.shape).to(mean.dtype) * std + mean
            ),
            aten.normal.Tensor_float: lambda mean, std=1.0, generator=None: (
                self._bits_normal(mean.shape).to(mean.dtype) * std + mean
            ),
            aten.normal.float_Tensor: lambda mean, std, generator=None: (
                self._bits_normal(std.shape).to(std.dtype) * std + mean
            ),
            aten.normal.float_float: lambda mean, std, size, **options: self._normal(size, **options) * std + mean,
            aten.log_normal_.default: lambda x, mean=1.0, std=2.0, generator=None: x.copy_(
                (self._bits_normal(x.shape) * std + mean).exp()
            ),
            aten.cauchy_.default: lambda x, median=0.0, sigma=1.0, generator=None: x.copy_(
                self._cauchy(x.shape) * sigma + median
            ),
            aten.geometric_.default: lambda x, p, generator=None: x.copy_(
                (self._exponential(x.shape) / -log1p(-p)).ceil()
            ),
            aten.rrelu_with_noise.default: self._rrelu,
            aten.exponential_.default: lambda x, lambd=1.0, generator=None: x.copy_(self._exponential(x.shape) / lambd),
            aten.multinomial.default: self._multinomial,
        }
        self.table |= {op: self.table[like] for op, like in _BY_GENERATOR.items()}

    def dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, train: bool | None = None
    ) -> Tensor:
        """``torch.nn.functional.dropout``. A scaled mask costs one multiplication in the forward pass and one in the
        backward pass."""
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"the probability of dropout lies in [0, 1], got {p}")
        if p == 0.0 or not (training if train is None else train):
            return input
        scale = self._kept(input.shape, 1.0 - p).to(input.dtype) * (1.0 / (1.0 - p) if p < 1.0 else 0.0)
        return input.mul_(scale) if inplace else input * scale

    # -------------------------------------------------------------- by op

    def _native_dropout(self, x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
        if train is False or p == 0.0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        kept = self._kept(x.shape, 1.0 - p)
        return x * (kept.to(x.dtype) * (1.0 / (1.0 - p) if p < 1.0 else 0.0)), kept

    def _uniform(self, size: Sequence[int], dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        return self._bits_uniform(size).to(dtype or torch.get_default_dtype())

    def _normal(self, size: Sequence[int], dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        return self._bits_normal(size).to(dtype or torch.get_default_dtype())

    def _integers(
        self, low: int, high: int, size: Sequence[int], dtype: torch.dtype | None = None, **options: Any
    ) -> Tensor:
        if not 0 < high - low <= 2**32:
            raise ArgumentError(f"a graph draws whole numbers of a range of 1 to 2**32, got those from {low} to {high}")
        bits = counter_random.random_bits(size, *self._next()).to(torch.int64) & 0xFFFFFFFF
        return (bits % (high - low) + low).to(dtype or torch.int64)

    def _permutation(self, n: int, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        return counter_random.random_bits([n], *self._next()).argsort().to(dtype or torch.int64)

    def _rrelu(
        self,
        x: Tensor,
        noise: Tensor,
        lower: float = 0.125,
        upper: float = 1 / 3,
        training: bool = False,
        generator: Any = None,
    ) -> Tensor:
        if not training:
            return torch.where(x <= 0, x * ((lower + upper) / 2), x)
        slopes = (self._bits_uniform(x.shape) * (upper - lower) + lower).to(x.dtype)
        return x * noise.copy_(torch.where(x <= 0, slopes, torch.ones_like(slopes)))

    def _multinomial(self, weights: Tensor, count: int, replacement: bool = False, generator: Any = None) -> Tensor:
        """The largest of weights divided by exponential draws: each index comes first with the probability of its
        weight."""
        if not replacement:
            return (weights / self._exponential(weights.shape).to(weights.dtype)).topk(count).indices
        wide = weights.unsqueeze(-2).expand(*weights.shape[:-1], count, weights.shape[-1])
        return (wide / self._exponential(wide.shape).to(weights.dtype)).argmax(-1)

    # -------------------------------------------------------------- numbers

    def _next(self) -> tuple[int, Tensor]:
        """The seed of the next random op, and the step."""
        assert self.step is not None
        self._count += 1
        return counter_random.stable_seed(self._seed, self._count), self.step

    def _kept(self, shape: Sequence[int], probability: float) -> Tensor:
        return counter_random.bernoulli(shape, probability, *self._next())

    def _below(self, probabilities: Tensor) -> Tensor:
        return self._bits_uniform(probabilities.shape) < probabilities

    def _bits_uniform(self, shape: Sequence[int]) -> Tensor:
        return counter_random.uniform(shape, *self._next())

    def _bits_normal(self, shape: Sequence[int]) -> Tensor:
        """Box and Muller's formula of two uniform values."""
        radius = torch.sqrt(-2.0 * torch.log(self._bits_uniform(shape) + _TINY))
        return radius * torch.cos(self._bits_uniform(shape) * (2.0 * pi))

    def _cauchy(self, shape: Sequence[int]) -> Tensor:
        return torch.tan((self._bits_uniform(shape) + _TINY - 0.5) * pi)

    def _exponential(self, shape: Sequence[int]) -> Tensor:
        return -torch.log(self._bits_uniform(shape) + _TINY).clamp(min=log(_TINY), max=-_TINY)


def _like(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "dtype": options.get("dtype") or x.dtype}
