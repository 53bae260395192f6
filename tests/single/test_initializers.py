"""Initializers against the formulas of their distributions; regularizers against theirs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch

from oneflow import initializer as init
from oneflow import regularizers
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import ArgumentError, DTypeError, UnsupportedError
from oneflow.engine.core.spec import TensorSpec

SHAPE = (200, 300)
CONV_NCHW = (64, 32, 3, 5)
CONV_NHWC = (64, 3, 5, 32)

Cdf = Callable[[np.ndarray], np.ndarray]


def draw(
    initializer: Any, shape: tuple[int, ...] = SHAPE, dtype: dtypes.DType = dtypes.float32, seed: int = 0
) -> np.ndarray:
    tensor = initializer.draw(TensorSpec(shape, dtype), torch.Generator().manual_seed(seed))
    assert (
        tuple(tensor.shape) == shape
        and tensor.dtype == dtype.torch
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
    )
    return tensor.to(torch.float64).numpy()


def uniform(low: float, high: float) -> Cdf:
    return lambda x: np.clip((x - low) / (high - low), 0, 1)


def around_zero(bound: float) -> Cdf:
    return uniform(-bound, bound)


def normal(mean: float, stddev: float) -> Cdf:
    return lambda x: 0.5 * (1 + np.vectorize(math.erf)((x - mean) / stddev / math.sqrt(2)))


def truncated(mean: float, stddev: float) -> Cdf:
    whole, edge = normal(mean, stddev), normal(0, 1)(np.array(-2.0))
    return lambda x: np.clip((whole(x) - edge) / (1 - 2 * edge), 0, 1)


def assert_follows(values: np.ndarray, cdf: Cdf) -> None:
    """The Kolmogorov-Smirnov statistic stays below what chance exceeds once in ten thousand times; seeds are fixed."""
    expected = cdf(np.sort(values.ravel()))
    steps = np.arange(len(expected) + 1) / len(expected)
    distance = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    assert distance < 2.23 / math.sqrt(len(expected)), distance


STD_TRUNCATED = 0.87962566103423978


@pytest.mark.parametrize(
    "initializer, shape, cdf",
    [
        (init.random_uniform_initializer(), SHAPE, uniform(0, 1)),
        (init.random_uniform_initializer(-3, 0.5), SHAPE, uniform(-3, 0.5)),
        (init.random_normal_initializer(), SHAPE, normal(0, 1)),
        (init.random_normal_initializer(2.0, stddev=0.1), SHAPE, normal(2, 0.1)),
        (init.truncated_normal(0.1), SHAPE, truncated(0, 0.1)),
        (init.truncated_normal_initializer(1.0, 2.0), SHAPE, truncated(1, 2)),
        (init.variance_scaling_initializer(), SHAPE, truncated(0, math.sqrt(1 / 300) / STD_TRUNCATED)),
        (init.variance_scaling_initializer(2.0, "fan_out", "random_normal"), SHAPE, normal(0, math.sqrt(2 / 200))),
        (
            init.variance_scaling_initializer(2.0, "fan_in", "random_normal", "NCHW"),
            CONV_NCHW,
            normal(0, math.sqrt(2 / 480)),
        ),
        (init.variance_scaling_initializer(2.0, "fan_in", "random_normal"), CONV_NHWC, normal(0, math.sqrt(2 / 480))),
        (
            init.variance_scaling_initializer(1.0, "fan_out", "random_uniform", "NHWC"),
            CONV_NHWC,
            around_zero(math.sqrt(3 / 960)),
        ),
        (init.glorot_uniform_initializer(), SHAPE, around_zero(math.sqrt(6 / 500))),
        (init.glorot_normal_initializer("NCHW"), CONV_NCHW, normal(0, math.sqrt(2 / (480 + 960)))),
        (init.kaiming_initializer(SHAPE), SHAPE, normal(0, math.sqrt(2 / 300))),
        (init.kaiming_initializer(SHAPE, negative_slope=0.5), SHAPE, normal(0, math.sqrt(2 / 1.25 / 300))),
        (
            init.kaiming_initializer(SHAPE, "random_uniform", "fan_out", "tanh"),
            SHAPE,
            around_zero(5 / 3 * math.sqrt(3 / 200)),
        ),
        (
            init.kaiming_initializer(CONV_NHWC, mode="fan_avg", nonlinearity=None, data_format="NHWC"),
            CONV_NHWC,
            normal(0, 720**-0.5),
        ),
        (init.kaiming_initializer(list(CONV_NCHW), nonlinearity="relu"), CONV_NCHW, normal(0, math.sqrt(2 / 480))),
        (init.from_conf({"random_normal_conf": {"std": 0.1}}), SHAPE, normal(0, 0.1)),
        (init.from_conf({"random_uniform_conf": {"min": -1, "max": 2}}), SHAPE, uniform(-1, 2)),
        (init.from_conf({"truncated_normal_conf": {"std": 0.5}}), SHAPE, truncated(0, 0.5)),
        (init.from_conf({"xavier_conf": {"variance_norm": "kAverage"}}), SHAPE, around_zero(math.sqrt(6 / 500))),
        (init.from_conf({"msra_conf": {}}), SHAPE, normal(0, math.sqrt(2 / 300))),
        (
            init.from_conf(
                {"variance_scaling_conf": {"scale": 2.0, "variance_norm": "kFanOut", "distribution": "kRandomNormal"}}
            ),
            SHAPE,
            normal(0, 0.1),
        ),
    ],
)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_distribution(initializer: Any, shape: tuple[int, ...], cdf: Cdf, dtype: dtypes.DType) -> None:
    assert_follows(draw(initializer, shape, dtype), cdf)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16])
def test_truncation_is_at_two_stddev(dtype: dtypes.DType) -> None:
    values = draw(init.truncated_normal_initializer(0.0, 0.5), (1000, 1000), dtype)
    assert np.abs(values).max() <= 1.0
    assert np.abs(values).max() > 0.999
    assert abs(values.std() - 0.5 * STD_TRUNCATED) < 2e-3


def test_scaled_truncation_has_the_variance_asked_for() -> None:
    values = draw(init.variance_scaling_initializer(3.0), (1000, 500))
    assert abs(values.var() / (3.0 / 500) - 1) < 0.01


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
@pytest.mark.parametrize(
    "initializer", [init.random_uniform_initializer(), init.random_normal_initializer(), init.truncated_normal()]
)
def test_short_floats_are_rounded_once(initializer: Any, dtype: dtypes.DType) -> None:
    expected = torch.from_numpy(draw(initializer)).to(dtype.torch).to(torch.float64).numpy()
    np.testing.assert_array_equal(draw(initializer, dtype=dtype), expected)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.float32])
def test_whole_numbers(dtype: dtypes.DType) -> None:
    values = draw(init.random_uniform_initializer(3, 7, dtypes.int32), dtype=dtype)
    found, counts = np.unique(values, return_counts=True)
    assert found.tolist() == [3, 4, 5, 6, 7]
    assert np.abs(counts / values.size - 0.2).max() < 0.01
    assert (draw(init.from_conf({"random_uniform_int_conf": {"min": 1, "max": 1}}), dtype=dtype) == 1).all()


@pytest.mark.parametrize(
    "initializer, value",
    [
        (init.zeros_initializer(), 0),
        (init.ones_initializer(), 1),
        (init.ones_initializer(dtypes.int32), 1),
        (init.constant_initializer(), 0),
        (init.constant_initializer(5), 5),
        (init.constant_initializer(7, dtypes.int64), 7),
        (init.empty_initializer(), 0),
        (init.from_conf({"constant_conf": {"value": 2.0}}), 2),
        (init.from_conf({"constant_int_conf": {"value": 2}}), 2),
        (init.from_conf({"constant_conf": {}}), 0),
    ],
)
@pytest.mark.parametrize("dtype", dtypes.ALL)
def test_constants(initializer: Any, value: float, dtype: dtypes.DType) -> None:
    assert (draw(initializer, (2, 3), dtype) == value).all()


def test_draws_follow_the_generator_alone() -> None:
    initializer = init.truncated_normal(0.1)
    np.testing.assert_array_equal(draw(initializer, seed=1), draw(initializer, seed=1))
    assert (draw(initializer, seed=1) != draw(initializer, seed=2)).any()


@pytest.mark.parametrize(
    "shape, data_format, fans",
    [
        ((10, 20), "", (20, 10, 15)),
        ((10, 20), "NHWC", (20, 10, 15)),
        ((64, 3, 7, 5), "NCHW", (105, 2240, 1172.5)),
        ((64, 7, 5, 3), "NHWC", (105, 2240, 1172.5)),
        ((64, 7, 5, 3), "channels_last", (105, 2240, 1172.5)),
        ((8, 4, 3), "NCW", (12, 24, 18)),
        ((8, 2, 3, 4, 5), "NCDHW", (120, 480, 300)),
        ((8, 3, 4, 5, 2), "NDHWC", (120, 480, 300)),
    ],
)
def test_fans(shape: tuple[int, ...], data_format: str, fans: tuple[float, ...]) -> None:
    assert tuple(init.fan(shape, mode, data_format) for mode in init.MODES) == fans


def test_values() -> None:
    """Initializers are values: equal when made alike, not to be changed, and the aliases are the same functions."""
    assert init.truncated_normal(0.1) == init.truncated_normal_initializer(stddev=0.1)
    assert hash(init.zeros_initializer()) == hash(init.constant_initializer(0.0))
    assert init.xavier_uniform_initializer is init.glorot_uniform_initializer
    assert init.xavier_normal_initializer is init.glorot_normal_initializer
    with pytest.raises(FrozenInstanceError):
        init.ones_initializer().value = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "call, kind, words",
    [
        (
            lambda: draw(init.random_normal_initializer(), dtype=dtypes.int32),
            DTypeError,
            "cannot fill a int32 variable",
        ),
        (lambda: draw(init.random_uniform_initializer(), dtype=dtypes.int8), DTypeError, "dtype=flow.int32"),
        (lambda: draw(init.truncated_normal(), dtype=dtypes.uint8), DTypeError, "real numbers"),
        (lambda: draw(init.constant_initializer(0.5), dtype=dtypes.int32), DTypeError, "whole numbers, got 0.5"),
        (
            lambda: draw(init.constant_initializer(300), dtype=dtypes.int8),
            DTypeError,
            "does not fit int8, which holds -128 to 127",
        ),
        (lambda: init.constant_initializer(0.5, dtypes.int32), DTypeError, "whole numbers, got 0.5"),
        (lambda: init.constant_initializer(math.nan, dtypes.int32), DTypeError, "whole numbers, got nan"),
        (lambda: init.constant_initializer("1"), ArgumentError, "value is a number, got '1'"),
        (lambda: init.random_uniform_initializer(2, 1), ArgumentError, "minval 2 is greater than maxval 1"),
        (lambda: init.random_uniform_initializer(0, 1.5, dtypes.int32), DTypeError, "got 1.5"),
        (lambda: init.random_normal_initializer(seed=1), UnsupportedError, "random_seed="),
        (lambda: init.random_normal_initializer(dtype=dtypes.float32), UnsupportedError, "dtype="),
        (lambda: init.truncated_normal(-0.1), ArgumentError, "stddev is a number >= 0, got -0.1"),
        (lambda: init.variance_scaling_initializer(mode="fan_inn"), ArgumentError, "Did you mean 'fan_in'"),
        (
            lambda: init.variance_scaling_initializer(distribution="uniform"),
            ArgumentError,
            "Did you mean 'random_uniform'",
        ),
        (lambda: init.variance_scaling_initializer(0.0), ArgumentError, "scale is a number > 0, got 0.0"),
        (lambda: init.variance_scaling_initializer(data_format="HWC"), ArgumentError, "'NCHW' or 'NHWC', got 'HWC'"),
        (
            lambda: draw(init.glorot_uniform_initializer(), CONV_NCHW),
            ArgumentError,
            "depends on its layout; give data_format",
        ),
        (lambda: draw(init.glorot_uniform_initializer(), (5,)), ArgumentError, r"rank 2 or more, got shape \(5,\)"),
        (lambda: init.kaiming_initializer(5), ArgumentError, "the weight's shape as a tuple, got 5"),
        (lambda: init.kaiming_initializer((2, 3), "truncated_normal"), ArgumentError, "distribution is one of"),
        (lambda: init.kaiming_initializer((2, 3), nonlinearity="rely"), ArgumentError, "Did you mean 'relu'"),
        (lambda: init.from_conf({"random_norml_conf": {}}), ArgumentError, "Did you mean 'random_normal_conf'"),
        (
            lambda: init.from_conf({"random_normal_conf": {"stdd": 1}}),
            ArgumentError,
            "no field 'stdd'. Did you mean 'std'",
        ),
        (lambda: init.from_conf({"xavier_conf": {"variance_norm": "kFanInn"}}), ArgumentError, "Did you mean 'kFanIn'"),
        (lambda: init.from_conf({"constant_conf": 1.0}), ArgumentError, "a dict of its fields, got 1.0"),
        (lambda: init.from_conf({}), ArgumentError, "a dict with one entry"),
        (lambda: init.from_conf(None), ArgumentError, "a dict with one entry"),
        (lambda: regularizers.l2(-1.0), ArgumentError, "l is a number >= 0, got -1.0"),
        (lambda: regularizers.l1("a"), ArgumentError, "got 'a'"),
    ],
)
def test_refused(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_regularizers() -> None:
    assert regularizers.l1() == regularizers.Regularizer(0.01, 0.0)
    assert regularizers.l2(0.5) == regularizers.Regularizer(0.0, 0.5)
    assert regularizers.l1_l2(l2=1) == regularizers.Regularizer(0.01, 1.0)
