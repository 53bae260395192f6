"""Samples of ops/unary.py."""

from __future__ import annotations

import math

import numpy as np
import torch
from sample import Sample, ints, rand

from oneflow import math as fmath
from oneflow.keras import activations

X = rand(3, 4)
UNIT = rand(3, 4, low=-0.9, high=0.9)
POSITIVE = rand(3, 4, low=0.2, high=3.0)
I = ints(3, 4, low=-5, high=5)
HALVES = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3, -0.7], np.float32)
EVEN = np.array([-2, -2, 0, 0, 2, 2, 0, -1], np.float32)


def normal(x):
    """The normal distribution function."""
    return (1 + torch.erf(x / math.sqrt(2))) / 2


def erf_by_series(x):
    """The error function as its Taylor series, enough terms for |x| <= 2."""
    term, total = x, x
    for n in range(1, 40):
        term = -term * x * x / n
        total = total + term / (2 * n + 1)
    return total * 2 / math.sqrt(math.pi)


def lgamma_by_stirling(x):
    """log gamma for x > 0: shifted far to the right, where Stirling's series is exact to float32."""
    shift = sum(torch.log(x + n) for n in range(12))
    z = x + 12
    return (z - 0.5) * torch.log(z) - z + 0.5 * math.log(2 * math.pi) + 1 / (12 * z) - 1 / (360 * z**3) - shift


def no_nan_reciprocal(x):
    safe = torch.where(x == 0, torch.ones_like(x), x)
    return torch.where(x == 0, torch.zeros_like(x), 1 / safe)


ACTIVATIONS = [
    Sample("math.relu", fmath.relu, (X,), lambda x: x.clamp(min=0)),
    Sample("math.relu", activations.relu, (X,), lambda x: x.clamp(min=0)),
    Sample("math.relu", fmath.relu, (I,), lambda x: x.clamp(min=0), gradient=False),
    Sample("math.sigmoid", fmath.sigmoid, (X,), lambda x: 1 / (1 + torch.exp(-x))),
    Sample("math.sigmoid", fmath.sigmoid_v2, (X,), lambda x: 1 / (1 + torch.exp(-x))),
    Sample("math.sigmoid", activations.sigmoid, (X,), lambda x: 1 / (1 + torch.exp(-x))),
    Sample("math.tanh", fmath.tanh, (X,), lambda x: 1 - 2 / (torch.exp(2 * x) + 1)),
    Sample("math.tanh", activations.tanh, (X,), lambda x: 1 - 2 / (torch.exp(2 * x) + 1)),
    Sample("math.gelu", fmath.gelu, (X,), lambda x: x * normal(x)),
    Sample("math.gelu", activations.gelu, (X,), lambda x: x * normal(x)),
]

EVERY_DTYPE = [
    Sample("math.abs", fmath.abs, (X,), lambda x: torch.where(x < 0, -x, x)),
    Sample("math.abs", fmath.abs, (I,), lambda x: torch.where(x < 0, -x, x), gradient=False),
    Sample("math.negative", fmath.negative, (X,), lambda x: 0 - x),
    Sample("math.negative", fmath.negative, (I,), lambda x: 0 - x, gradient=False),
    Sample(
        "math.sign",
        fmath.sign,
        (np.array([-3.0, 0.0, 2.0], np.float32),),
        lambda x: torch.tensor([-1.0, 0.0, 1.0]) + 0 * x,
    ),
    Sample("math.square", fmath.square, (X,), lambda x: x * x),
    Sample("math.square", fmath.square, (I,), lambda x: x * x, gradient=False),
    Sample("math.logical_not", fmath.logical_not, (np.array([0, 1, 0], np.int8),), lambda x: 1 - x, gradient=False),
]

FUNCTIONS = [
    Sample("math.acos", fmath.acos, (UNIT,), lambda x: 2 * torch.atan(torch.sqrt(1 - x * x) / (1 + x)), rtol=1e-4),
    Sample(
        "math.acosh",
        fmath.acosh,
        (rand(3, 4, low=1.2, high=4.0),),
        lambda x: torch.log(x + torch.sqrt(x * x - 1)),
        rtol=1e-4,
    ),
    Sample("math.asin", fmath.asin, (UNIT,), lambda x: torch.atan(x / torch.sqrt(1 - x * x)), rtol=1e-4),
    Sample("math.asinh", fmath.asinh, (X,), lambda x: torch.log(x + torch.sqrt(x * x + 1)), rtol=1e-4),
    Sample("math.atan", fmath.atan, (X,), lambda x: torch.asin(x / torch.sqrt(1 + x * x)), rtol=1e-4),
    Sample("math.atanh", fmath.atanh, (UNIT,), lambda x: 0.5 * torch.log((1 + x) / (1 - x)), rtol=1e-4),
    Sample("math.cos", fmath.cos, (X,), lambda x: 1 - 2 * torch.sin(x / 2) ** 2, rtol=1e-4),
    Sample("math.cosh", fmath.cosh, (X,), lambda x: (torch.exp(x) + torch.exp(-x)) / 2),
    Sample("math.sin", fmath.sin, (X,), lambda x: 2 * torch.sin(x / 2) * torch.cos(x / 2)),
    Sample("math.sinh", fmath.sinh, (X,), lambda x: (torch.exp(x) - torch.exp(-x)) / 2, rtol=1e-4),
    Sample("math.tan", fmath.tan, (UNIT,), lambda x: torch.sin(x) / torch.cos(x)),
    Sample("math.exp", fmath.exp, (X,), lambda x: math.e**x),
    Sample("math.expm1", fmath.expm1, (X,), lambda x: torch.exp(x) - 1, rtol=1e-4),
    Sample("math.log", fmath.log, (POSITIVE,), lambda x: torch.log2(x) * math.log(2)),
    Sample("math.log1p", fmath.log1p, (UNIT,), lambda x: torch.log(1 + x), rtol=1e-4),
    Sample("math.log_sigmoid", fmath.log_sigmoid, (X,), lambda x: -torch.log(1 + torch.exp(-x))),
    Sample("math.softplus", fmath.softplus, (X,), lambda x: torch.log(1 + torch.exp(x))),
    Sample("math.softplus", fmath.softplus, (np.array([-90.0, 90.0], np.float32),), lambda x: x.clamp(min=0)),
    Sample("math.erf", fmath.erf, (X,), erf_by_series, rtol=1e-4, atol=1e-5),
    Sample("math.erfc", fmath.erfc, (X,), lambda x: 1 - erf_by_series(x), rtol=1e-4, atol=1e-5),
    Sample("math.lgamma", fmath.lgamma, (POSITIVE,), lgamma_by_stirling, rtol=1e-4, atol=1e-5),
    Sample("math.sqrt", fmath.sqrt, (POSITIVE,), lambda x: x**0.5),
    Sample("math.rsqrt", fmath.rsqrt, (POSITIVE,), lambda x: x**-0.5),
    Sample("math.reciprocal", fmath.reciprocal, (POSITIVE,), lambda x: 1 / x),
    Sample(
        "math.reciprocal_no_nan", fmath.reciprocal_no_nan, (np.array([2.0, 0.0, -4.0], np.float32),), no_nan_reciprocal
    ),
]

ROUNDING = [
    Sample("math.ceil", fmath.ceil, (HALVES,), lambda x: torch.tensor([-2.0, -1, 0, 1, 2, 3, 1, 0]) + 0 * x),
    Sample("math.floor", fmath.floor, (HALVES,), lambda x: torch.tensor([-3.0, -2, -1, 0, 1, 2, 0, -1]) + 0 * x),
    Sample("math.round", fmath.round, (HALVES,), lambda x: torch.from_numpy(EVEN) + 0 * x),
    Sample("math.rint", fmath.rint, (HALVES,), lambda x: torch.from_numpy(EVEN) + 0 * x),
]

CLIPPING = [
    Sample(
        "math.clip_by_value",
        lambda x: fmath.clip_by_value(x, -1, 0.5),
        (X,),
        lambda x: torch.relu(x + 1) - torch.relu(x - 0.5) - 1,
    ),
    Sample("math.clip_by_value", lambda x: fmath.clip(x, max_value=0.5), (X,), lambda x: torch.where(x > 0.5, 0.5, x)),
    Sample("math.clip_by_value", lambda x: fmath.clamp(x, min_value=0), (X,), torch.relu),
    Sample(
        "math.clip_by_value",
        lambda x: fmath.clip_by_scalar(x, -2, 3),
        (I,),
        lambda x: torch.from_numpy(np.clip(x.numpy(), -2, 3)),
        gradient=False,
    ),
]

SAMPLES = ACTIVATIONS + EVERY_DTYPE + FUNCTIONS + ROUNDING + CLIPPING
