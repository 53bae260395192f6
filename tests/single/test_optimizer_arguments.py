"""Arguments of optimizers, and dictionaries, that cannot be."""

import numpy as np
import pytest
from optimizer_cases import constant, cosine, run

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError

opt = flow.optimizer


@pytest.mark.parametrize(
    "conf, pattern",
    [
        ({"momentum_conf": {"beta1": 0.9}}, "momentum_conf has no key 'beta1'. Did you mean 'beta'"),
        ({"lamb_conf": {}}, r"lamb_conf needs \['beta1', 'beta2', 'epsilon'\]"),
        ({"naive_conf": {}, "clip_conf": {}}, "clip_conf names exactly one of"),
        ({"naive_conf": {}, "clip_conf": {"clip_by_global_norm": {}}}, r"clip_by_global_norm needs \['clip_norm'\]"),
        (
            {"naive_conf": {}, "weight_decay_conf": {"decay_rate": 1}},
            "no key 'decay_rate'. Did you mean 'weight_decay_rate'",
        ),
        (
            {"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": 1, "includes": {"patterns": []}}},
            "Did you mean 'pattern'",
        ),
        ({"naive_conf": 3}, "naive_conf is a dictionary, got int 3"),
        ({"momentum_conf": {"beta": "0.9"}}, "beta is a number >= 0 and <= 1, got '0.9'"),
        ({"adam_conf": {"beta1": None}}, "beta1 is a number >= 0 and < 1, got None"),
        ({"adam_conf": {"do_bias_correction": "no"}}, "do_bias_correction is True or False, got 'no'"),
        (
            {"naive_conf": {}, "clip_conf": {"clip_by_global_norm": {"clip_norm": "1"}}},
            "clip_norm is a number > 0, got '1'",
        ),
        (
            {"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": None}},
            "weight_decay_rate is a number >= 0, got None",
        ),
        (
            {"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": 1, "includes": {"pattern": 3}}},
            "a list of regular expressions, got 3",
        ),
    ],
)
def test_dictionaries_that_cannot_be(conf, pattern):
    with pytest.raises(AssertionError, match=pattern):
        run(conf=conf)


@pytest.mark.parametrize(
    "make, pattern",
    [
        (
            lambda: opt.SGD(cosine(), grad_clipping=1.0),
            "grad_clipping is flow.optimizer.grad_clipping.by_global_norm.*, got 1.0",
        ),
        (lambda: opt.SGD(cosine(), momentum=-3), "momentum is a number >= 0 and <= 1, got -3"),
        (lambda: opt.SGD(cosine(), momentum=False), "momentum is a number >= 0 and <= 1, got False"),
        (lambda: opt.SGD(cosine(), variables=3), "variables is a list of variable names, .* got 3"),
        (lambda: opt.SGD(cosine(), variables=[3]), r"variables is a list of variable names, .* got \[3\]"),
        (lambda: opt.SGDW(cosine(), weight_decay=-0.1), "weight_decay is a number >= 0, got -0.1"),
        (
            lambda: opt.SGDW(cosine(), weight_decay=0.1, weight_decay_includes=[3]),
            r"a list of regular expressions, got \[3\]",
        ),
        (lambda: opt.Adam(cosine(), beta1="a"), "beta1 is a number >= 0 and < 1, got 'a'"),
        (lambda: opt.Adam(cosine(), beta2=1.0), "beta2 is a number >= 0 and < 1, got 1.0"),
        (lambda: opt.AdamW(cosine(), epsilon=-1e-8), "epsilon is a number >= 0, got -1e-08"),
        (lambda: opt.LazyAdam(cosine(), epsilon=None), "epsilon is a number >= 0, got None"),
        (lambda: opt.RMSProp(cosine(), decay_rate=2), "decay_rate is a number >= 0 and <= 1, got 2"),
        (lambda: opt.RMSProp(cosine(), centered="yes"), "centered is True or False, got 'yes'"),
        (lambda: opt.LARS(cosine(), momentum_beta="a"), "momentum_beta is a number >= 0 and <= 1, got 'a'"),
        (lambda: opt.LARS(cosine(), lars_coefficient=[]), r"lars_coefficient is a number >= 0, got \[\]"),
        (lambda: opt.LAMB(cosine(), beta1=1), "beta1 is a number >= 0 and < 1, got 1"),
        (lambda: opt.CombinedOptimizer(opt.SGD(cosine())), "CombinedOptimizer takes a list of optimizers, got <"),
        (lambda: opt.CombinedOptimizer([0.1]), r"CombinedOptimizer takes a list of optimizers, got \[0.1\]"),
    ],
)
def test_arguments_that_cannot_be(make, pattern):
    with pytest.raises(ArgumentError, match=pattern) as caught:
        make()
    assert str(caught.value).startswith(f"{__file__}:")


def test_numpy_numbers_are_numbers():
    numbers = np.array([0.75, 0.5, 1e-4], np.float32)
    clip = opt.grad_clipping.by_global_norm(np.float32(0.5))
    ours = run(lambda: opt.Adam(constant(np.float64(0.1)), *numbers, do_bias_correction=np.True_, grad_clipping=clip))
    clip = opt.grad_clipping.by_global_norm(0.5)
    plain = run(lambda: opt.Adam(constant(0.1), *map(float, numbers), do_bias_correction=True, grad_clipping=clip))
    for name, value in plain.items():
        np.testing.assert_array_equal(ours[name], value)


def test_a_scheduler_of_another_kind():
    with pytest.raises(AssertionError, match="lr_scheduler is a flow.optimizer.*Scheduler, got 0.1"):
        opt.SGD(0.1)
    with pytest.raises(NotImplementedError, match="train_step_lbn is not supported"):
        opt.SGD(cosine(), train_step_lbn="x/out")
