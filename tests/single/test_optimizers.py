"""Rates, regularizers, clipping, their order, and the objective, against the formulas written out in numpy."""

import math

import numpy as np
import pytest
from optimizer_cases import (
    DECAY,
    FIRST,
    GRADIENTS,
    SHAPES,
    STEPS,
    Given,
    adam,
    check,
    clip,
    constant,
    cosine,
    expected,
    momentum,
    naive,
    rate,
    run,
)

import oneflow as flow

opt = flow.optimizer


def test_train_steps_are_counted():
    assert run(lambda: opt.SGD(cosine(), momentum=0))["System-Train-TrainStep-job"].tolist() == [STEPS]


def test_weight_decay_includes_and_excludes():
    with pytest.raises(AssertionError, match="includes or excludes, not both"):
        opt.AdamW(cosine(), weight_decay=0.1, weight_decay_includes="a", weight_decay_excludes="b")
    with pytest.raises(AssertionError, match="is not a regular expression"):
        opt.AdamW(cosine(), weight_decay=0.1, weight_decay_includes="(")


# ------------------------------------------------------------------------------- rates, regularizers, clipping, order


def test_momentum_keeps_its_precision_at_small_rates():
    """The rate goes into the velocity itself: it must not be taken from a difference to 1."""
    got = run(lambda: opt.SGD(constant(1e-7), momentum=0.9), gradients=GRADIENTS[:2])
    want = expected(momentum, gradients=GRADIENTS[:2], rates={name: lambda t: 1e-7 for name in SHAPES})
    for name in SHAPES:
        np.testing.assert_allclose(got[f"{name}-momentum"], want[f"{name}-momentum"], rtol=1e-5)


def test_secondary_rate_is_for_biases():
    got = run(conf={"momentum_conf": {}} | DECAY, setup=lambda config: config.train.secondary_lr(0.02))
    check(got, expected(momentum, rates={"fc-bias": lambda t: rate(t, 0.02)}))


def test_without_a_secondary_rate_biases_have_the_primary_one():
    check(run(conf={"momentum_conf": {}} | DECAY), expected(momentum))


def regularized(l1: dict, l2: dict, formula=naive, **more):
    """The formula on g + l1 * sign(w) + l2 * w; the variable is told by its shape."""
    names = {shape: name for name, shape in SHAPES.items()}

    def step(w, g, s, lr, decay, t, **numbers):
        name = names[w.shape]
        return formula(w, g + l1.get(name, 0) * np.sign(w) + l2.get(name, 0) * w, s, lr, decay, t, **numbers)

    return expected(step, **more)


def test_regularizers():
    got = run(lambda: opt.SGD(cosine()), weight=flow.regularizers.l1_l2(0.1, 0.2), bias=flow.regularizers.l1(0.3))
    check(got, regularized({"fc-weight": 0.1, "fc-bias": 0.3}, {"fc-weight": 0.2}, momentum))
    got = run(lambda: opt.SGD(cosine()), weight=flow.regularizers.l2(0.2))
    check(got, regularized({}, {"fc-weight": 0.2}, momentum))
    got = run(lambda: opt.SGD(cosine(), momentum=0.0), weight=flow.regularizers.l2(0.2), bias=flow.regularizers.l2(0.3))
    check(got, regularized({}, {"fc-weight": 0.2, "fc-bias": 0.3}))
    got = run(lambda: opt.Adam(cosine()), bias=flow.regularizers.l2(0.2))
    check(got, regularized({}, {"fc-bias": 0.2}, adam))


def test_l1_and_l2_of_weights_and_biases():
    def setup(config):
        config.train.weight_l1(0.1)
        config.train.weight_l2(0.2)
        config.train.bias_l1(0.3)
        config.train.bias_l2(0.4)

    want = regularized({"fc-weight": 0.1, "fc-bias": 0.3}, {"fc-weight": 0.2, "fc-bias": 0.4}, momentum)
    check(run(conf={"momentum_conf": {}} | DECAY, setup=setup), want)
    got = run(conf={"momentum_conf": {}} | DECAY, setup=setup, weight=flow.regularizers.l2(0.5))
    check(got, regularized({"fc-weight": 0.1, "fc-bias": 0.3}, {"fc-weight": 0.7, "fc-bias": 0.4}, momentum))


def test_l1_leaves_zero_at_zero():
    @flow.global_function(type="train")
    def job():
        w = flow.get_variable(
            "w", (2,), initializer=Given(np.array([0.0, -2.0])), regularizer=flow.regularizers.l1(0.5)
        )
        opt.SGD(constant(1.0), momentum=0).minimize(w * 0.0)

    job()
    assert flow.get_all_variables()["w"].numpy().tolist() == [0.0, -1.5]


@pytest.mark.parametrize("norm", [0.5, 1.0, 2.5, 100.0])
@pytest.mark.parametrize("historical", [False, True])
def test_clipping_looks_at_all_variables_together(norm, historical):
    clipping = opt.grad_clipping.by_global_norm(norm, historical=historical)
    got = run(lambda: opt.SGD(cosine(), grad_clipping=clipping))
    check(got, expected(momentum, gradients=clip(GRADIENTS, norm, historical)))


def test_clipping_in_dictionary_form():
    got = run(conf={"adam_conf": {}, "clip_conf": {"clip_by_global_norm": {"clip_norm": 0.5}}} | DECAY)
    check(got, expected(adam, gradients=clip(GRADIENTS, 0.5, False)))


def test_clipping_spans_groups_of_different_rates_and_decays():
    conf = {"momentum_conf": {}, "clip_conf": {"clip_by_global_norm": {"clip_norm": 0.5}}}
    conf["weight_decay_conf"] = {"weight_decay_rate": 0.3, "excludes": {"pattern": ["bias"]}}
    got = run(conf=conf | DECAY, setup=lambda config: config.train.secondary_lr(0.02))
    rates = {"fc-bias": lambda t: rate(t, 0.02)}
    check(got, expected(momentum, {"fc-weight": 0.3}, gradients=clip(GRADIENTS, 0.5, False), rates=rates))


def test_clipping_comes_after_regularizing():
    clipping = opt.grad_clipping.by_global_norm(0.5)
    got = run(
        lambda: opt.SGD(constant(1.0), momentum=0, grad_clipping=clipping),
        gradients=GRADIENTS[:1],
        weight=flow.regularizers.l2(3.0),
    )
    gradient = GRADIENTS[0] | {"fc-weight": GRADIENTS[0]["fc-weight"] + 3 * FIRST["fc-weight"]}
    check(got, expected(naive, gradients=clip([gradient], 0.5, False), rates={name: lambda t: 1.0 for name in SHAPES}))


def test_a_gradient_of_zero_is_not_clipped_to_nan():
    zero = [{name: np.zeros(shape) for name, shape in SHAPES.items()}]
    got = run(
        lambda: opt.SGD(cosine(), momentum=0, grad_clipping=opt.grad_clipping.by_global_norm(1.0)), gradients=zero
    )
    check(got, FIRST)


@pytest.mark.parametrize("norm", [0, -1.0, "1", None, True, math.inf])
def test_clip_norms_that_cannot_be(norm):
    with pytest.raises(AssertionError, match="clip_norm is a number > 0, got"):
        opt.grad_clipping.by_global_norm(norm)


# ------------------------------------------------------------------------------------------------------ the objective


def train_vector(reduce, losses: int = 1) -> np.ndarray:
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((2, 3))):
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        opt.SGD(constant(0.1), momentum=0).minimize([reduce(w * x) for _ in range(losses)])

    job(np.arange(6, dtype=np.float32).reshape(2, 3))
    return flow.get_all_variables()["w"].numpy()


def test_the_objective_is_the_mean_of_the_loss_elements():
    np.testing.assert_allclose(train_vector(lambda loss: loss), [1 - 0.1 * 2.5], rtol=1e-6)
    np.testing.assert_allclose(train_vector(flow.math.reduce_mean), [1 - 0.1 * 2.5], rtol=1e-6)
    np.testing.assert_allclose(train_vector(flow.math.reduce_sum), [1 - 0.1 * 15], rtol=1e-6)
    np.testing.assert_allclose(train_vector(lambda loss: loss, losses=3), [1 - 0.1 * 7.5], rtol=1e-6)


def test_the_returned_loss_is_that_before_the_update():
    @flow.global_function(type="train")
    def job():
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        loss = w * w
        opt.SGD(constant(0.25), momentum=0).minimize(loss)
        return loss, w

    for value in (1.0, 0.5, 0.25):
        loss, w = job().get()
        assert (loss, w) == (value**2, value)


def test_the_optimizer_in_the_body_replaces_the_dictionary():
    got = run(lambda: opt.Adam(cosine()), conf={"naive_conf": {}})
    check(got, expected(adam))


def test_a_float64_job():
    config = flow.function_config()
    config.default_data_type(flow.float64)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.FixedTensorDef((1,), dtype=flow.float64)):
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        opt.Adam(constant(0.5)).minimize(w * x)

    job(np.ones(1))
    after = flow.get_all_variables()
    assert (after["w"].dtype, after["w-m"].dtype) == (flow.float64, flow.float64)
    np.testing.assert_allclose(after["w"].numpy(), 1 - 0.5 * 0.1 / (math.sqrt(0.001) + 1e-8), rtol=1e-12)
