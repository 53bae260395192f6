"""Sweeps: what an update does in one pass over the memory of a variable, its gradient and its states, as the torch ops
that it stands for.

A sweep takes tensors of one size and a sequence of numbers, and gives the new values of those that it writes, then sums
over the variable if it takes any. ``a``, ``b`` and ``c`` are its first three numbers: the update goes by d = a * g + b
* w + c * sign(w), so that the division by a loss scale, regularizers, the factor of clipping and a weight decay cost no
pass of their own. All else that changes from step to step is a number too, so that one kernel serves all steps. The C
extension has the same sweeps by name (``native/_update.c``); Inductor writes others from these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Numbers = Sequence[Any]


@dataclass(frozen=True)
class Sweep:
    """``function(*tensors, numbers)`` of one variable: so many ``tensors``, of which it writes those at ``writes``;
    then it gives so many ``sums``."""

    function: Callable[..., tuple[Tensor, ...]]
    tensors: int
    writes: tuple[int, ...]
    numbers: int
    sums: int = 0

    @property
    def name(self) -> str:
        return self.function.__name__


def _direction(w: Tensor, g: Tensor, n: Numbers) -> Tensor:
    return n[0] * g + n[1] * w + n[2] * torch.sign(w)


def _square(x: Tensor) -> Tensor:
    """The sum of squares; that of short floats in float32."""
    x = x.float() if x.itemsize < 4 else x
    return (x * x).sum()


def squares(w: Tensor, g: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """The sums of the squares of w and of d."""
    return _square(w), _square(_direction(w, g, n))


def descent(w: Tensor, g: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """w -= rate * d"""
    return (w - n[3] * _direction(w, g, n),)


def momentum(w: Tensor, g: Tensor, v: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """v = keep * v + take * d; w = shrink * w + by_v * v + by_d * d"""
    keep, take, shrink, by_v, by_d = n[3:8]
    d = _direction(w, g, n)
    v = keep * v + take * d
    return shrink * w + by_v * v + by_d * d, v


def adam(w: Tensor, g: Tensor, m: Tensor, v: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """m, v: moving means of d and d*d; w = shrink * w - step * m / (sqrt(v) * root + epsilon)"""
    shrink, step, root, epsilon = n[7:11]
    m, v = _moments(_direction(w, g, n), m, v, n)
    return shrink * w - step * m / (torch.sqrt(v) * root + epsilon), m, v


def amsgrad(w: Tensor, g: Tensor, m: Tensor, v: Tensor, largest: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """As adam, with the largest v so far below the root."""
    shrink, step, root, epsilon = n[7:11]
    m, v = _moments(_direction(w, g, n), m, v, n)
    largest = torch.maximum(largest, v)
    return shrink * w - step * m / (torch.sqrt(largest) * root + epsilon), m, v, largest


def _moments(d: Tensor, m: Tensor, v: Tensor, n: Numbers) -> tuple[Tensor, Tensor]:
    keep1, take1, keep2, take2 = n[3:7]
    return keep1 * m + take1 * d, keep2 * v + take2 * d * d


def adagrad(w: Tensor, g: Tensor, s: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """s += d * d; w -= rate * d / (sqrt(s) + epsilon)"""
    d = _direction(w, g, n)
    s = s + d * d
    return w - n[3] * d / (torch.sqrt(s) + n[4]), s


def adadelta(w: Tensor, g: Tensor, s: Tensor, u: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """s: moving mean of d*d; x = sqrt(u + epsilon) / sqrt(s + epsilon) * d; u: moving mean of x*x; w -= rate * x"""
    keep, take, epsilon, rate = n[3:7]
    d = _direction(w, g, n)
    s = keep * s + take * d * d
    change = torch.sqrt(u + epsilon) / torch.sqrt(s + epsilon) * d
    return w - rate * change, s, keep * u + take * change * change


def rmsprop(w: Tensor, g: Tensor, s: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """s: moving mean of d*d; w -= rate * d / sqrt(s + epsilon)"""
    d = _direction(w, g, n)
    s = n[3] * s + n[4] * d * d
    return w - n[6] * d / torch.sqrt(s + n[5]), s


def rmsprop_momentum(w: Tensor, g: Tensor, s: Tensor, v: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """The change of w goes into a velocity first: v = momentum * v + rate * d / sqrt(s + epsilon); w -= v"""
    d = _direction(w, g, n)
    s = n[3] * s + n[4] * d * d
    v = n[7] * v + n[6] * d / torch.sqrt(s + n[5])
    return w - v, s, v


def rmsprop_centered(w: Tensor, g: Tensor, s: Tensor, mean: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """As rmsprop, with the variance below the root."""
    d = _direction(w, g, n)
    s, mean = n[3] * s + n[4] * d * d, n[3] * mean + n[4] * d
    return w - n[6] * d / torch.sqrt(s - mean * mean + n[5]), s, mean


def rmsprop_centered_momentum(
    w: Tensor, g: Tensor, s: Tensor, mean: Tensor, v: Tensor, n: Numbers
) -> tuple[Tensor, ...]:
    """Both of the two before."""
    d = _direction(w, g, n)
    s, mean = n[3] * s + n[4] * d * d, n[3] * mean + n[4] * d
    v = n[7] * v + n[6] * d / torch.sqrt(s - mean * mean + n[5])
    return w - v, s, mean, v


def lamb_moments(w: Tensor, g: Tensor, m: Tensor, v: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """The moving means, and the sums of the squares of w and of the direction that ``lamb_step`` goes."""
    m, v = _moments(_direction(w, g, n), m, v, n)
    return m, v, _square(w), _square(n[7] * m / (torch.sqrt(v) * n[8] + n[9]))


def lamb_step(w: Tensor, m: Tensor, v: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """w -= rate * (step * m / (sqrt(v) * root + epsilon) + decay * w)"""
    rate, decay, step, root, epsilon = n
    return (w - rate * (step * m / (torch.sqrt(v) * root + epsilon) + decay * w),)


def ftrl(w: Tensor, g: Tensor, s: Tensor, z: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """s' = s + d*d; z += d - (s' ** p - s ** p) / rate * w; w = (sign(z) * l1 - z) / (s' ** p / rate + 2 * l2) where
    abs(z) > l1, else 0"""
    rate, l1, l2, power = n[3:7]
    return _followed(w, _direction(w, g, n), s, z, (rate, l1, l2), lambda x: torch.pow(x, power))


def ftrl_root(w: Tensor, g: Tensor, s: Tensor, z: Tensor, n: Numbers) -> tuple[Tensor, ...]:
    """The same for p = 0.5."""
    return _followed(w, _direction(w, g, n), s, z, n[3:6], torch.sqrt)


def _followed(
    w: Tensor, d: Tensor, s: Tensor, z: Tensor, n: Numbers, power: Callable[[Tensor], Tensor]
) -> tuple[Tensor, ...]:
    rate, l1, l2 = n
    before, s = power(s), s + d * d
    after = power(s)
    z = z + d - (after - before) / rate * w
    return (
        torch.where(torch.abs(z) > l1, (torch.sign(z) * l1 - z) / (after / rate + 2.0 * l2), torch.zeros_like(z)),
        s,
        z,
    )


SQUARES = Sweep(squares, 2, (), 3, sums=2)
DESCENT = Sweep(descent, 2, (0,), 4)
MOMENTUM = Sweep(momentum, 3, (0, 2), 8)
ADAM = Sweep(adam, 4, (0, 2, 3), 11)
AMSGRAD = Sweep(amsgrad, 5, (0, 2, 3, 4), 11)
ADAGRAD = Sweep(adagrad, 3, (0, 2), 5)
ADADELTA = Sweep(adadelta, 4, (0, 2, 3), 7)
RMSPROP = Sweep(rmsprop, 3, (0, 2), 7)
RMSPROP_MOMENTUM = Sweep(rmsprop_momentum, 4, (0, 2, 3), 8)
RMSPROP_CENTERED = Sweep(rmsprop_centered, 4, (0, 2, 3), 7)
RMSPROP_CENTERED_MOMENTUM = Sweep(rmsprop_centered_momentum, 5, (0, 2, 3, 4), 8)
LAMB_MOMENTS = Sweep(lamb_moments, 4, (2, 3), 10, sums=2)
LAMB_STEP = Sweep(lamb_step, 3, (0,), 5)
FTRL = Sweep(ftrl, 4, (0, 2, 3), 7)
FTRL_ROOT = Sweep(ftrl_root, 4, (0, 2, 3), 6)

SWEEPS = (
    *(SQUARES, DESCENT, MOMENTUM, ADAM, AMSGRAD, ADAGRAD, ADADELTA, RMSPROP, RMSPROP_MOMENTUM, RMSPROP_CENTERED),
    *(RMSPROP_CENTERED_MOMENTUM, LAMB_MOMENTS, LAMB_STEP, FTRL, FTRL_ROOT),
)
