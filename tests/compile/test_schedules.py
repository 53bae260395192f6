"""What schedules take and refuse, how they round, and how they start. Their formulas are in test_schedule_table.py."""

import math

import numpy as np
import pytest

from oneflow import optimizer as opt
from oneflow.optimizer.conf import optimizer_from_conf

STEPS = [0, 1, 2, 3, 9, 10, 11, 19, 20, 21, 37, 100, 101, 250]
T, BASE = 10, 0.3


def near(scheduler, formula, steps=STEPS) -> None:
    np.testing.assert_allclose([scheduler.lr(t) for t in steps], [formula(t) for t in steps], rtol=1e-6, atol=1e-12)


def from_conf(**conf):
    return optimizer_from_conf({"naive_conf": {}, **conf}, BASE).lr_scheduler


def cosine(t, alpha=0.0, base=BASE):
    t = min(t, T)
    return base * ((1 - alpha) * (1 + math.cos(math.pi * t / T)) / 2 + alpha)


def test_one_scale_for_every_boundary():
    near(opt.PiecewiseScalingScheduler(BASE, [2, 10], 0.1), lambda t: BASE if t <= 2 else BASE * 0.1)


def test_the_class_form_warms_up_to_its_first_value():
    scheduler = opt.PiecewiseConstantScheduler([5], [2.0, 1.0], warmup=opt.warmup.linear(4, 0.0))
    near(scheduler, lambda t: 2.0 * t / 4 if t < 4 else 2.0 if t <= 5 else 1.0, range(8))


@pytest.mark.parametrize(
    "t, rate",
    [
        (0, 0.0),
        (1, 1.02298e-05),
        (25024, 0.25598977),
        (25025, 0.253820557),
        (225225, 0.11618965),
        (425425, 0.0),
        (500000, 0.0),
    ],
)
def test_the_schedule_of_the_resnet_recipe(t, rate):
    scheduler = opt.CosineScheduler(0.256, 425425, warmup=opt.warmup.linear(25025, 0))
    np.testing.assert_allclose(scheduler.lr(t), rate, rtol=1e-5, atol=1e-12)


def test_rates_are_rounded_to_float32():
    rates = [opt.CosineScheduler(0.1, 7).lr(t) for t in range(7)]
    assert rates == [float(np.float32(r)) for r in rates]
    assert opt.ConstantScheduler(0.1).lr(0) != 0.1


def test_another_base_rate_gets_the_same_decay():
    scheduler = opt.CosineScheduler(BASE, T, warmup=opt.warmup.linear(2, 0.5))
    np.testing.assert_allclose([scheduler.lr(t, 1.2) for t in (0, 1, 5)], [0.6, 0.9, cosine(5, base=1.2)], rtol=1e-6)


@pytest.mark.parametrize(
    "make, pattern",
    [
        (lambda: opt.CosineScheduler(0.1, 0), "steps is an int > 0, got 0"),
        (lambda: opt.ExponentialScheduler(0.1, 2.5, 0.5), "steps is an int > 0, got 2.5"),
        (lambda: opt.CosineScheduler(".1", 5), "base_lr is a number >= 0, got '.1'"),
        (lambda: opt.CosineScheduler(None, 5), "base_lr is a number >= 0, got None"),
        (lambda: opt.CosineScheduler(math.nan, 5), "base_lr is a number >= 0, got nan"),
        (lambda: opt.CosineScheduler(0.1, True), "steps is an int > 0, got True"),
        (lambda: opt.CosineScheduler(0.1, 5, alpha="a"), "alpha is a number, got 'a'"),
        (lambda: opt.LinearCosineScheduler(0.1, 5, num_periods=None), "num_periods is a number, got None"),
        (lambda: opt.LinearCosineScheduler(0.1, 5, beta="b"), "beta is a number, got 'b'"),
        (lambda: opt.PolynomialScheduler(0.1, 5, end_learning_rate="0"), "end_learning_rate is a number >= 0, got '0'"),
        (lambda: opt.PolynomialScheduler(0.1, 5, power=-1), "power is a number >= 0, got -1"),
        (lambda: opt.PolynomialScheduler(0.1, 5, cycle="no"), "cycle is True or False, got 'no'"),
        (lambda: opt.ExponentialScheduler(0.1, 5, -0.5), "decay_rate is a number >= 0, got -0.5"),
        (lambda: opt.InverseTimeScheduler(0.1, 5, 0.5, staircase=2), "staircase is True or False, got 2"),
        (lambda: opt.PiecewiseConstantScheduler(3, [0.1, 0.2]), "boundaries is a list of numbers, got 3"),
        (lambda: opt.PiecewiseConstantScheduler([1.5], [0.1, 0.2]), "an element of boundaries is an int, got 1.5"),
        (lambda: opt.PiecewiseConstantScheduler([1], ["0.1", 0.2]), "an element of values is a number >= 0, got '0.1'"),
        (lambda: opt.PiecewiseScalingScheduler(0.1, [1], "0.1"), "scale is a list of numbers, got '0.1'"),
        (lambda: opt.CustomScheduler(0.1), "CustomScheduler takes a blob's logical_blob_name.* got 0.1"),
        (lambda: opt.warmup.linear(2.0, 0.0), "steps is an int >= 0, got 2.0"),
        (lambda: opt.warmup.constant(5, "0"), "multiplier is a number >= 0 and < 1, got '0'"),
        (lambda: opt.PiecewiseConstantScheduler([1], [0.1]), "1 boundaries need 2 values, got 1"),
        (lambda: opt.PiecewiseConstantScheduler([3, 2], [1, 2, 3]), "boundaries must increase"),
        (lambda: opt.PiecewiseScalingScheduler(0.1, [1, 2], [0.1]), "2 boundaries need as many scales, got 1"),
        (lambda: opt.warmup.linear(-1, 0.0), "steps is an int >= 0, got -1"),
        (lambda: opt.warmup.linear(5, 1.0), "start_multiplier is a number >= 0 and < 1, got 1.0"),
        (lambda: opt.warmup.constant(5, 2.0), "multiplier is a number >= 0 and < 1, got 2.0"),
        (lambda: opt.CosineScheduler(0.1, 5, warmup=3), "warmup is flow.optimizer.warmup"),
        (lambda: from_conf(learning_rate_decay={}), "names exactly one of"),
        (lambda: from_conf(learning_rate_decay={"cosin_conf": {}}), "Did you mean 'cosine_conf'"),
        (lambda: from_conf(learning_rate_decay={"cosine_conf": {}}), r"cosine_conf needs \['decay_batches'\]"),
        (
            lambda: from_conf(learning_rate_decay={"cosine_conf": {"decay_batches": 5, "alpa": 1}}),
            "Did you mean 'alpha'",
        ),
        (
            lambda: from_conf(learning_rate_decay={"piecewise_scaling_conf": {"boundaries": [1], "scales": [1]}}),
            "need 2 scales, got 1",
        ),
        (lambda: from_conf(warmup_conf={"linear_conf": {"warmup_batches": 5}}), r"needs \['start_multiplier'\]"),
        (
            lambda: from_conf(learning_rate_decay={"cosine_conf": {"decay_batches": "5"}}),
            "decay_batches is an int >= 1, got '5'",
        ),
        (
            lambda: from_conf(learning_rate_decay={"piecewise_constant_conf": {"boundaries": 3, "values": [0.1]}}),
            "boundaries is a list of numbers, got 3",
        ),
        (
            lambda: from_conf(learning_rate_decay={"piecewise_scaling_conf": {"boundaries": [3], "scales": 0.1}}),
            "scales is a list of numbers, got 0.1",
        ),
        (
            lambda: from_conf(warmup_conf={"linear_conf": {"warmup_batches": -1, "start_multiplier": 0}}),
            "warmup_batches is an int >= 0, got -1",
        ),
        (lambda: from_conf(warmup_conf=3), "warmup_conf is a dictionary, got int 3"),
    ],
)
def test_schedules_that_cannot_be(make, pattern):
    with pytest.raises(AssertionError, match=pattern):
        make()


def test_numpy_numbers_are_numbers():
    """Of every kind that a program computes; the rates are those of the same Python numbers."""
    start, steps = opt.warmup.linear(np.int64(2), np.float32(0.5)), np.int32(8)
    pairs = [
        (
            opt.CosineScheduler(np.float64(0.5), steps, np.float32(0.25), start),
            opt.CosineScheduler(0.5, 8, 0.25, opt.warmup.linear(2, 0.5)),
        ),
        (
            opt.PolynomialScheduler(np.float32(0.5), steps, np.float64(0.25), cycle=np.True_),
            opt.PolynomialScheduler(0.5, 8, 0.25, cycle=True),
        ),
        (
            opt.PiecewiseConstantScheduler(np.array([2, 4]), np.array([1, 0.5, 0.25])),
            opt.PiecewiseConstantScheduler([2, 4], [1, 0.5, 0.25]),
        ),
        (
            opt.PiecewiseScalingScheduler(0.5, [np.int64(2)], np.float32(0.5)),
            opt.PiecewiseScalingScheduler(0.5, range(2, 3), 0.5),
        ),
    ]
    for ours, plain in pairs:
        assert [ours.lr(t) for t in range(12)] == [plain.lr(t) for t in range(12)]
        assert type(ours.base_lr) is float
