"""Samples of ops/elementwise.py."""

from __future__ import annotations

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import math as fmath
from oneflow.keras import maths

X, Y = rand(3, 4), rand(3, 4, seed=1)
ROW, ONE = rand(4, seed=2), rand(1, seed=3)
POSITIVE = rand(3, 4, low=0.3, high=3.0, seed=4)
I, J = ints(3, 4, low=-9, high=9), ints(3, 4, low=1, high=5, seed=1)
WITH_ZEROS = np.array([[1.0, 0.0, -2.0], [0.0, 4.0, 0.5]], np.float32)
TIED = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], np.float32)
FLAGS = np.array([0, 1, 0, 1], np.int8)
OTHER_FLAGS = np.array([0, 0, 1, 1], np.int8)


def no_nan_quotient(number, x):
    """number / x with 0 where x is 0, without a division by 0 that would spoil the gradient."""
    safe = torch.where(x == 0, torch.ones_like(x), x)
    return torch.where(x == 0, torch.zeros_like(x), number / safe)


def int8(flags):
    return flags.to(torch.int8)


ARITHMETIC = [
    Sample("math.multiply", lambda x: np.float32(2) * x + np.int64(1), (rand(3, 4),), lambda x: 2 * x + 1),
    Sample("math.add", fmath.add, (X, Y), lambda x, y: x + y),
    Sample("math.add", lambda x: fmath.add(2, x), (X,), lambda x: x + 2),
    Sample("math.add", lambda x: 1.5 + x, (X,), lambda x: x + 1.5),
    Sample("math.add", maths.add, (X, ROW), lambda x, y: x + y),
    Sample("math.add", lambda x: x + 3, (I,), lambda x: x + 3, gradient=False),
    Sample("math.add", lambda x: x + 3.0, (I,), lambda x: x + 3, gradient=False),
    Sample("math.subtract", fmath.subtract, (X, ROW), lambda x, y: x - y),
    Sample("math.subtract", fmath.subtract, (ONE, X), lambda x, y: x - y),
    Sample("math.subtract", lambda x: 2 - x, (X,), lambda x: 2 - x),
    Sample("math.subtract", lambda x: x - 2, (I,), lambda x: x - 2, gradient=False),
    Sample("math.multiply", fmath.multiply, (X, Y), lambda x, y: x * y),
    Sample("math.multiply", lambda x: fmath.multiply(x, 0.5), (X,), lambda x: x * 0.5),
    Sample("math.multiply", lambda x: -1 * x, (X,), lambda x: -x),
    Sample("math.multiply", lambda x: -x, (I,), lambda x: -x, gradient=False),
    Sample("math.multiply", fmath.multiply, (rand(2, 1, 4), rand(3, 1, seed=1)), lambda x, y: x * y),
    Sample("math.divide", fmath.divide, (X, POSITIVE), lambda x, y: x / y),
    Sample("math.divide", fmath.divide, (ONE, POSITIVE), lambda x, y: x / y),
    Sample("math.divide", lambda x: x / 4, (X,), lambda x: x * 0.25),
    Sample("math.divide", lambda x: fmath.divide(x, 0), (X,), lambda x: x * 0.0),
    Sample("math.divide", lambda x: 3 / x, (WITH_ZEROS,), lambda x: no_nan_quotient(3.0, x)),
    Sample(
        "math.divide",
        fmath.divide,
        (I, J),
        lambda x, y: torch.from_numpy(np.trunc(x.numpy() / y.numpy()).astype(np.int32)),
        gradient=False,
    ),
    Sample(
        "math.divide",
        lambda x: x / 2,
        (I,),
        lambda x: torch.from_numpy(np.trunc(x.numpy() / 2).astype(np.int32)),
        gradient=False,
    ),
    Sample("math.mod", fmath.mod, (X, POSITIVE), lambda x, y: x - y * torch.floor(x / y).detach()),
    Sample("math.mod", lambda x: x % 3, (I,), lambda x: torch.from_numpy(np.mod(x.numpy(), 3)), gradient=False),
    Sample("math.mod", lambda x: 2.5 % x, (POSITIVE,), lambda x: 2.5 - x * torch.floor(2.5 / x).detach()),
    Sample("math.floordiv", fmath.floordiv, (X, POSITIVE), lambda x, y: torch.floor(x / y)),
    Sample(
        "math.floordiv",
        lambda x: fmath.floordiv(x, 2),
        (I,),
        lambda x: torch.from_numpy(x.numpy() // 2),
        gradient=False,
    ),
    Sample("math.floordiv", lambda x: fmath.floordiv(7, x), (POSITIVE,), lambda x: torch.floor(7 / x)),
    Sample("math.pow", fmath.pow, (POSITIVE, X), lambda x, y: torch.exp(y * torch.log(x)), rtol=1e-4),
    Sample("math.pow", lambda x: fmath.pow(x, 3), (X,), lambda x: x * x * x),
    Sample("math.pow", lambda x: fmath.pow(2, x), (X,), lambda x: torch.exp(x * np.log(2.0))),
    Sample("math.pow", lambda x: fmath.pow(x, 2), (I,), lambda x: x * x, gradient=False),
    Sample("math.maximum", fmath.maximum, (X, Y), lambda x, y: torch.where(x > y, x, y)),
    Sample(
        "math.maximum",
        lambda x: fmath.maximum(x, 0.5),
        (X,),
        lambda x: torch.where(x > 0.5, x, torch.full_like(x, 0.5)),
    ),
    Sample("math.minimum", fmath.minimum, (X, ROW), lambda x, y: torch.where(x < y, x, y)),
    Sample(
        "math.minimum",
        lambda x: fmath.minimum(2, x),
        (I,),
        lambda x: torch.where(x < 2, x, torch.full_like(x, 2)),
        gradient=False,
    ),
    Sample(
        "math.squared_difference", fmath.squared_difference, (X, ROW), lambda x, y: x * x - 2 * x * y + y * y, rtol=1e-4
    ),
    Sample("math.squared_difference", lambda x: fmath.squared_difference(x, 1), (X,), lambda x: (x - 1) * (x - 1)),
    Sample("math.atan2", fmath.atan2, (X, POSITIVE), lambda x, y: torch.atan(x / y)),
    Sample("math.atan2", fmath.atan2, (X, Y), lambda x, y: torch.angle(torch.complex(y, x))),
    Sample("math.atan2", lambda x: fmath.atan2(x, 1), (X,), torch.atan),
    Sample("math.xdivy", fmath.xdivy, (X, POSITIVE), lambda x, y: x / y),
    Sample(
        "math.xdivy",
        fmath.xdivy,
        (WITH_ZEROS, np.array([[2.0, 0.0, 4.0], [1.0, 8.0, 1.0]], np.float32)),
        lambda x, y: torch.tensor([[0.5, 0.0, -0.5], [0.0, 0.5, 0.5]]),
        gradient=False,
    ),
    Sample("math.xlogy", fmath.xlogy, (X, POSITIVE), lambda x, y: x * torch.log(y)),
    Sample(
        "math.xlogy",
        fmath.xlogy,
        (np.array([0.0, 2.0], np.float32), np.array([0.0, 1.0], np.float32)),
        lambda x, y: torch.zeros(2),
        gradient=False,
    ),
    Sample("math.xlogy", lambda x: fmath.xlogy(3, x), (POSITIVE,), lambda x: 3 * torch.log(x)),
    Sample("math.add_n", lambda x, y, z: fmath.add_n([x, y, z]), (X, Y, POSITIVE), lambda x, y, z: x + y + z),
    Sample("math.add_n", lambda x: fmath.add_n((x,)), (X,), lambda x: x * 1),
    Sample("math.polyval", lambda x: fmath.polyval([2.0, 0, -1.5, 3], x), (X,), lambda x: 2 * x**3 - 1.5 * x + 3),
    Sample("math.polyval", lambda a, x: fmath.polyval((a, 1), x), (Y, X), lambda a, x: a * x + 1),
    Sample("math.polyval", lambda x: fmath.polyval([], x), (X,), lambda x: x * 0, gradient=False),
]

COMPARISONS = [
    Sample("math.equal", fmath.equal, (TIED, TIED[::-1].copy()), lambda x, y: int8(x - y == 0), gradient=False),
    Sample("math.equal", lambda x: x == 2, (TIED,), lambda x: int8(torch.abs(x - 2) == 0), gradient=False),
    Sample("math.not_equal", fmath.not_equal, (I, J), lambda x, y: int8((x - y).abs() > 0), gradient=False),
    Sample("math.not_equal", lambda x: x != 2, (TIED,), lambda x: int8((x - 2).abs() > 0), gradient=False),
    Sample("math.less", fmath.less, (X, ROW), lambda x, y: int8(y - x > 0), gradient=False),
    Sample("math.less", lambda x: 2 < x, (TIED,), lambda x: int8(x > 2), gradient=False),
    Sample("math.less_equal", fmath.less_equal, (TIED, TIED[0]), lambda x, y: int8(~(x > y)), gradient=False),
    Sample("math.less_equal", lambda x: x <= 2, (I,), lambda x: int8(~(x > 2)), gradient=False),
    Sample("math.greater", fmath.greater, (X, Y), lambda x, y: int8(x - y > 0), gradient=False),
    Sample("math.greater", lambda x: fmath.greater(2.0, x), (TIED,), lambda x: int8(x < 2), gradient=False),
    Sample("math.greater_equal", fmath.greater_equal, (TIED, TIED[1]), lambda x, y: int8(~(x < y)), gradient=False),
    Sample("math.logical_and", fmath.logical_and, (FLAGS, OTHER_FLAGS), lambda x, y: x * y, gradient=False),
    Sample(
        "math.logical_and",
        fmath.logical_and,
        (WITH_ZEROS, WITH_ZEROS[0]),
        lambda x, y: int8(x * y != 0),
        gradient=False,
    ),
    Sample("math.logical_or", fmath.logical_or, (FLAGS, OTHER_FLAGS), lambda x, y: x | y, gradient=False),
    Sample("math.logical_xor", fmath.logical_xor, (FLAGS, OTHER_FLAGS), lambda x, y: x ^ y, gradient=False),
]

SAMPLES = ARITHMETIC + COMPARISONS
