"""What a loss is scaled by, and when that changes."""

import numpy as np
import pytest
from optimizer_cases import DECAY, GRADIENTS, adam, check, clip, constant, cosine, expected, run

import oneflow as flow
from oneflow.optimizer.loss_scale import LossScale

opt = flow.optimizer


@pytest.mark.parametrize("factor", [128, 3.0])
def test_a_static_loss_scale_is_neutral(factor):
    rtol = 2e-5 if factor == 3.0 else 0
    plain = run(lambda: opt.SGD(cosine()))
    for scaled in (
        run(lambda: opt.SGD(cosine(), loss_scale_factor=factor)),
        run(lambda: opt.SGD(cosine(), loss_scale_policy=opt.loss_scale.static_loss_scale(factor))),
        run(conf={"momentum_conf": {}} | DECAY, setup=lambda config: config.train.loss_scale_factor(factor)),
    ):
        check(scaled, {name: value for name, value in plain.items() if not name.startswith("System")}, rtol)


def test_a_static_loss_scale_is_taken_out_before_clipping():
    clipping = opt.grad_clipping.by_global_norm(2.5)
    got = run(lambda: opt.SGD(cosine(), grad_clipping=clipping, loss_scale_factor=64), weight=flow.regularizers.l2(0.1))
    want = run(lambda: opt.SGD(cosine(), grad_clipping=clipping), weight=flow.regularizers.l2(0.1))
    check(got, {name: value for name, value in want.items() if not name.startswith("System")})


def test_a_dynamic_loss_scale_skips_steps_that_overflow():
    policy = opt.loss_scale.dynamic_loss_scale(initial_loss_scale=8, increment_period=2, multiplier=4.0)

    @flow.global_function(type="train")
    def job(g=flow.FixedTensorDef((2,))):
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        opt.SGD(constant(0.1), momentum=0.5, loss_scale_policy=policy).minimize(flow.math.reduce_sum(w * g))

    def state() -> tuple:
        found = {name: value.numpy() for name, value in flow.get_all_variables().items()}
        prefix = "System-Train-DynamicLossScale-job"
        scale, good = found[f"{prefix}-LossScale"], found[f"{prefix}-GoodStepCounter"]
        assert (scale.dtype, scale.shape, good.dtype, good.shape) == (np.float32, (1,), np.int64, (1,))
        return (
            found["w"].tolist(),
            found["w-momentum"].tolist(),
            scale[0],
            good[0],
            found["System-Train-TrainStep-job"][0],
        )

    w, v = np.ones(2), np.zeros(2)
    # gradient, then scale and count of good steps after it
    script = [
        (1, 8, 1),
        (2, 32, 0),
        (np.inf, 8, 0),
        (1, 8, 1),
        (np.nan, 2, 0),
        (-np.inf, 1, 0),
        (np.inf, 1, 0),
        (3, 1, 1),
        (1, 4, 0),
    ]
    assert state() == ([1, 1], [0, 0], 8, 0, 0)
    for t, (g, scale, good) in enumerate(script):
        if np.isfinite(g):
            v = 0.5 * v - 0.1 * np.array([g, 1])
            w = w + v
        job(np.array([g, 1], np.float32))
        got = state()
        np.testing.assert_allclose(got[0], w, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got[1], v, rtol=1e-6, atol=1e-6)
        assert got[2:] == (scale, good, t + 1)


def test_a_dynamic_loss_scale_is_neutral_while_nothing_overflows():
    policy = opt.loss_scale.dynamic_loss_scale(2**10, increment_period=2)
    got = run(lambda: opt.Adam(cosine(), loss_scale_policy=policy, grad_clipping=opt.grad_clipping.by_global_norm(0.5)))
    got = {name: value for name, value in got.items() if "DynamicLossScale" not in name}
    check(got, expected(adam, gradients=clip(GRADIENTS, 0.5, False)))


def test_a_dynamic_loss_scale_does_overflow():
    """A scale that is too large makes the scaled gradients infinite: it falls until they are finite."""
    policy = opt.loss_scale.dynamic_loss_scale(2.0**127)

    @flow.global_function(type="train")
    def job():
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        opt.SGD(constant(0.1), momentum=0, loss_scale_policy=policy).minimize(w * 16.0)

    for _ in range(8):
        job()
        w = flow.get_all_variables()["w"].numpy().item()
        if w != 1.0:
            break
    np.testing.assert_allclose(w, 1 - 1.6, rtol=1e-6)
    assert flow.get_all_variables()["System-Train-DynamicLossScale-job-LossScale"].numpy() < 2.0**127


def test_the_loss_scale_has_a_floor_and_a_ceiling():
    scale = LossScale(2.0**30, 2000, 2.0)
    assert scale.adjusted(1.0, 5, finite=False) == (1.0, 0)
    assert scale.adjusted(2.0**127, 1999, finite=True) == (float(np.finfo(np.float32).max), 0)
    assert scale.adjusted(2.0, 1998, finite=True) == (2.0, 1999)
    default = opt.loss_scale.dynamic_loss_scale()
    assert (default.initial, default.increment_period, default.multiplier) == (2.0**30, 2000, 2.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: opt.loss_scale.static_loss_scale(0),
        lambda: opt.loss_scale.static_loss_scale("8"),
        lambda: opt.loss_scale.dynamic_loss_scale(0.5),
        lambda: opt.SGD(cosine(), loss_scale_factor=-1),
        lambda: opt.SGD(cosine(), loss_scale_policy=128),
        lambda: opt.SGD(cosine(), loss_scale_factor=2, loss_scale_policy=opt.loss_scale.static_loss_scale(2)),
    ],
)
def test_loss_scales_that_cannot_be(make):
    with pytest.raises(AssertionError, match="loss.scale"):
        make()


def test_growths_of_a_loss_scale_that_cannot_be():
    with pytest.raises(AssertionError, match="increment_period is an int > 0, got 0"):
        opt.loss_scale.dynamic_loss_scale(8, increment_period=0)
    with pytest.raises(AssertionError, match="multiplier is a number > 1, got 1.0"):
        opt.loss_scale.dynamic_loss_scale(8, multiplier=1.0)
