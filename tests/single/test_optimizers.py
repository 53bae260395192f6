"""Every optimizer over several steps of changing gradients, against the formulas written out in numpy."""

import math

import numpy as np
import pytest

import oneflow as flow
from oneflow.core.errors import ArgumentError
from oneflow.optimizer.loss_scale import LossScale

opt = flow.optimizer
STEPS = 6
RATE, DECAY_STEPS = 0.1, 10
SHAPES = {"fc-weight": (3, 2), "fc-bias": (2,)}
FIRST = {name: np.random.default_rng(1).normal(size=shape) for name, shape in SHAPES.items()}
GRADIENTS = [{name: np.random.default_rng(10 + t).normal(size=shape) for name, shape in SHAPES.items()} for t in range(STEPS)]


class Given:
    """An initializer that gives exactly these values."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def draw(self, spec, generator):
        import torch

        return torch.from_numpy(self.value.astype(spec.dtype.numpy))


def rate(t: int, base: float = RATE) -> float:
    return base * 0.5 * (1 + math.cos(math.pi * t / DECAY_STEPS))


def cosine(base: float = RATE):
    return opt.CosineScheduler(base, DECAY_STEPS)


def constant(lr: float):
    return opt.PiecewiseConstantScheduler([], [lr])


# ---------------------------------------------------------------------------------------- the formulas, in float64
# Each takes a weight, its gradient, its state (a dict that starts empty), the rate, the weight decay and the step.


def naive(w, g, s, lr, decay, t):
    return w - lr * (g + decay * w)


def momentum(w, g, s, lr, decay, t, beta=0.9):
    s["momentum"] = beta * s.get("momentum", 0) - lr * g
    return w + s["momentum"] - lr * decay * w


def adam(w, g, s, lr, decay, t, beta1=0.9, beta2=0.999, epsilon=1e-8, correct=False):
    s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0) + (1 - beta2) * g * g
    if correct:
        lr = lr * math.sqrt(1 - beta2 ** (t + 1)) / (1 - beta1 ** (t + 1))
    return w - lr * (s["m"] / (np.sqrt(s["v"]) + epsilon) + decay * w)


def rmsprop(w, g, s, lr, decay, t, rho=0.99, epsilon=1e-8, centered=False):
    s["mean_square"] = (1 - rho) * g * g + rho * s.get("mean_square", 0)
    below = s["mean_square"]
    if centered:
        s["mean_gradient"] = (1 - rho) * g + rho * s.get("mean_gradient", 0)
        below = below - s["mean_gradient"] ** 2
    return w - lr * g / np.sqrt(below + epsilon)


def lars(w, g, s, lr, decay, t, beta=0.9, epsilon=1e-9, coefficient=0.0001):
    norm_w, norm_g = np.linalg.norm(w), np.linalg.norm(g)
    ratio = coefficient * norm_w / (epsilon + norm_g + decay * norm_w) if norm_w and norm_g else 1.0
    s["momentum"] = beta * s.get("momentum", 0) - lr * ratio * g
    return w + s["momentum"] - lr * ratio * decay * w


def lamb(w, g, s, lr, decay, t, beta1=0.9, beta2=0.999, epsilon=1e-6):
    s["beta1_t"] = s.get("beta1_t", beta1) * beta1
    s["beta2_t"] = s.get("beta2_t", beta2) * beta2
    s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0) + (1 - beta2) * g * g
    d = (s["m"] / (1 - s["beta1_t"])) / (np.sqrt(s["v"] / (1 - s["beta2_t"])) + epsilon)
    norm_w, norm_d = np.linalg.norm(w), np.linalg.norm(d)
    trust = norm_w / norm_d if norm_w > 0 and norm_d > 0 else 1.0
    return w - lr * trust * (d + decay * w)


def expected(formula, decays=None, gradients=None, rates=None, first=None, **numbers) -> dict[str, np.ndarray]:
    """All variables and their state after the steps."""
    weights, states = dict(first or FIRST), {name: {} for name in SHAPES}
    for t, gradient in enumerate(gradients or GRADIENTS):
        for name in SHAPES:
            lr = (rates or {}).get(name, rate)(t)
            weights[name] = formula(weights[name], gradient[name], states[name], lr, (decays or {}).get(name, 0.0), t, **numbers)
    return weights | {f"{name}-{key}": value for name, state in states.items() for key, value in state.items()}


# ------------------------------------------------------------------------------------------------ running our jobs


def variables(**regularizers):
    made = {}
    for name, shape in SHAPES.items():
        kind = name.split("-")[1]
        made[name] = flow.get_variable(name, shape, initializer=Given(FIRST[name]), model_name=kind, regularizer=regularizers.get(kind))
    return made


def objective(made, weight_gradient, bias_gradient):
    """A loss of one element whose gradient is what was fed."""
    return flow.math.reduce_sum(made["fc-weight"] * weight_gradient) + flow.math.reduce_sum(made["fc-bias"] * bias_gradient)


def run(optimizer=None, conf=None, gradients=None, setup=lambda config: None, **regularizers) -> dict[str, np.ndarray]:
    """All variables after training with the class form or, given ``conf``, the dictionary form."""
    flow.clear_default_session()
    config = flow.function_config()
    if conf is not None:
        config.train.primary_lr(RATE)
        config.train.model_update_conf(conf)
    setup(config)

    @flow.global_function(type="train", function_config=config)
    def job(gw=flow.FixedTensorDef((3, 2)), gb=flow.FixedTensorDef((2,))):
        loss = objective(variables(**regularizers), gw, gb)
        if optimizer is not None:
            optimizer().minimize(loss)
        else:
            flow.losses.add_loss(loss)

    for gradient in gradients or GRADIENTS:
        job(gradient["fc-weight"].astype(np.float32), gradient["fc-bias"].astype(np.float32))
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def check(got: dict[str, np.ndarray], want: dict[str, np.ndarray], rtol: float = 2e-5) -> None:
    counters = {"System-Train-TrainStep-job"}
    assert set(got) - counters == set(want)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], np.broadcast_to(value, got[name].shape), rtol, 1e-6, err_msg=name)


DECAY = {"learning_rate_decay": {"cosine_conf": {"decay_batches": DECAY_STEPS}}}
CASES = {
    "sgd": (lambda: opt.SGD(cosine(), momentum=0), {"naive_conf": {}}, naive, {}),
    "sgd none": (lambda: opt.SGD(cosine(), momentum=None), {"naive_conf": {}}, naive, {}),
    "momentum": (lambda: opt.SGD(cosine()), {"momentum_conf": {}}, momentum, {}),
    "momentum 0.5": (lambda: opt.SGD(cosine(), momentum=0.5), {"momentum_conf": {"beta": 0.5}}, momentum, {"beta": 0.5}),
    "adam": (lambda: opt.Adam(cosine()), {"adam_conf": {}}, adam, {}),
    "adam corrected": (
        lambda: opt.Adam(cosine(), do_bias_correction=True),
        {"adam_conf": {"do_bias_correction": True}},
        adam,
        {"correct": True},
    ),
    "adam numbers": (
        lambda: opt.Adam(cosine(), beta1=0.5, beta2=0.8, epsilon=0.1),
        {"adam_conf": {"beta1": 0.5, "beta2": 0.8, "epsilon": 0.1}},
        adam,
        {"beta1": 0.5, "beta2": 0.8, "epsilon": 0.1},
    ),
    "lazy adam": (lambda: opt.LazyAdam(cosine()), {"lazy_adam_conf": {}}, adam, {"correct": True}),
    "rmsprop": (lambda: opt.RMSProp(cosine()), {"rmsprop_conf": {}}, rmsprop, {}),
    "rmsprop numbers": (
        lambda: opt.RMSProp(cosine(), decay_rate=0.5, epsilon=0.2),
        {"rmsprop_conf": {"decay_rate": 0.5, "epsilon": 0.2}},
        rmsprop,
        {"rho": 0.5, "epsilon": 0.2},
    ),
    "rmsprop centered": (
        lambda: opt.RMSProp(cosine(), decay_rate=0.5, centered=True),
        {"rmsprop_conf": {"decay_rate": 0.5, "centered": True}},
        rmsprop,
        {"rho": 0.5, "centered": True},
    ),
    "lars": (lambda: opt.LARS(cosine()), {"lars_conf": {}}, lars, {}),
    "lars numbers": (
        lambda: opt.LARS(cosine(), momentum_beta=0.5, epsilon=0.1, lars_coefficient=0.3),
        {"lars_conf": {"momentum_beta": 0.5, "epsilon": 0.1, "lars_coefficient": 0.3}},
        lars,
        {"beta": 0.5, "epsilon": 0.1, "coefficient": 0.3},
    ),
    "lamb": (lambda: opt.LAMB(cosine()), {"lamb_conf": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}}, lamb, {}),
    "lamb numbers": (
        lambda: opt.LAMB(cosine(), beta1=0.5, beta2=0.8, epsilon=0.1),
        {"lamb_conf": {"beta1": 0.5, "beta2": 0.8, "epsilon": 0.1}},
        lamb,
        {"beta1": 0.5, "beta2": 0.8, "epsilon": 0.1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_optimizer(case):
    make, _, formula, numbers = CASES[case]
    check(run(make), expected(formula, **numbers))


@pytest.mark.parametrize("case", CASES)
def test_optimizer_in_dictionary_form(case):
    _, conf, formula, numbers = CASES[case]
    check(run(conf=conf | DECAY), expected(formula, **numbers))


def test_train_steps_are_counted():
    assert run(CASES["sgd"][0])["System-Train-TrainStep-job"].tolist() == [STEPS]


# -------------------------------------------------------------------------------------------------- weight decay

BOTH = {"fc-weight": 0.3, "fc-bias": 0.3}
ONLY_WEIGHT = {"fc-weight": 0.3}
DECAYING = {
    "sgdw": (lambda **more: opt.SGDW(cosine(), weight_decay=0.3, **more), {"momentum_conf": {}}, momentum, {}),
    "sgdw naive": (lambda **more: opt.SGDW(cosine(), momentum=0, weight_decay=0.3, **more), {"naive_conf": {}}, naive, {}),
    "adamw": (lambda **more: opt.AdamW(cosine(), weight_decay=0.3, **more), {"adam_conf": {}}, adam, {}),
    "adamw corrected": (
        lambda **more: opt.AdamW(cosine(), do_bias_correction=True, weight_decay=0.3, **more),
        {"adam_conf": {"do_bias_correction": True}},
        adam,
        {"correct": True},
    ),
    "lars": (
        lambda **more: opt.LARS(cosine(), lars_coefficient=0.1, weight_decay=0.3, **more),
        {"lars_conf": {"lars_coefficient": 0.1}},
        lars,
        {"coefficient": 0.1},
    ),
    "lamb": (
        lambda **more: opt.LAMB(cosine(), weight_decay=0.3, **more),
        {"lamb_conf": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}},
        lamb,
        {},
    ),
}


@pytest.mark.parametrize("case", DECAYING)
def test_weight_decay(case):
    make, conf, formula, numbers = DECAYING[case]
    check(run(make), expected(formula, BOTH, **numbers))
    check(run(conf=conf | DECAY | {"weight_decay_conf": {"weight_decay_rate": 0.3}}), expected(formula, BOTH, **numbers))


@pytest.mark.parametrize("case", DECAYING)
def test_weight_decay_of_some_variables(case):
    make, conf, formula, numbers = DECAYING[case]
    want = expected(formula, ONLY_WEIGHT, **numbers)
    check(run(lambda: make(weight_decay_includes="weight")), want)
    check(run(lambda: make(weight_decay_includes=["nothing", "^fc-w"])), want)
    check(run(lambda: make(weight_decay_excludes=["bias$", "beta"])), want)
    rates = {"weight_decay_rate": 0.3}
    check(run(conf=conf | DECAY | {"weight_decay_conf": rates | {"includes": {"pattern": ["weight"]}}}), want)
    check(run(conf=conf | DECAY | {"weight_decay_conf": rates | {"excludes": {"pattern": ["bias"]}}}), want)


@pytest.mark.parametrize("kind", ["rmsprop_conf", "lazy_adam_conf"])
def test_optimizers_without_weight_decay(kind):
    with pytest.raises(AssertionError, match=f"{kind} has no weight decay"):
        run(conf={kind: {}, "weight_decay_conf": {"weight_decay_rate": 0.1}})


def test_weight_decay_includes_and_excludes():
    with pytest.raises(AssertionError, match="includes or excludes, not both"):
        opt.AdamW(cosine(), weight_decay=0.1, weight_decay_includes="a", weight_decay_excludes="b")
    with pytest.raises(AssertionError, match="is not a regular expression"):
        opt.AdamW(cosine(), weight_decay=0.1, weight_decay_includes="(")


# --------------------------------------------------------------------------- rates, regularizers, clipping, order


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
        w = flow.get_variable("w", (2,), initializer=Given(np.array([0.0, -2.0])), regularizer=flow.regularizers.l1(0.5))
        opt.SGD(constant(1.0), momentum=0).minimize(w * 0.0)

    job()
    assert flow.get_all_variables()["w"].numpy().tolist() == [0.0, -1.5]


def clip(gradients, norm, historical):
    clipped = []
    for gradient in gradients:
        length = math.sqrt(sum((g**2).sum() for g in gradient.values()))
        factor = min(1 / length, 1 / norm) if historical else min(1, norm / length)
        clipped.append({name: g * factor for name, g in gradient.items()})
    return clipped


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
    check(got, expected(momentum, ONLY_WEIGHT, gradients=clip(GRADIENTS, 0.5, False), rates=rates))


def test_clipping_comes_after_regularizing():
    clipping = opt.grad_clipping.by_global_norm(0.5)
    got = run(lambda: opt.SGD(constant(1.0), momentum=0, grad_clipping=clipping), gradients=GRADIENTS[:1], weight=flow.regularizers.l2(3.0))
    gradient = GRADIENTS[0] | {"fc-weight": GRADIENTS[0]["fc-weight"] + 3 * FIRST["fc-weight"]}
    check(got, expected(naive, gradients=clip([gradient], 0.5, False), rates={name: lambda t: 1.0 for name in SHAPES}))


def test_a_gradient_of_zero_is_not_clipped_to_nan():
    zero = [{name: np.zeros(shape) for name, shape in SHAPES.items()}]
    got = run(lambda: opt.SGD(cosine(), momentum=0, grad_clipping=opt.grad_clipping.by_global_norm(1.0)), gradients=zero)
    check(got, FIRST)


@pytest.mark.parametrize("norm", [0, -1.0, "1", None, True, math.inf])
def test_clip_norms_that_cannot_be(norm):
    with pytest.raises(AssertionError, match="clip_norm is a number > 0, got"):
        opt.grad_clipping.by_global_norm(norm)


@pytest.mark.parametrize("case", ["lars", "lamb"])
def test_layerwise_rates_of_a_weight_or_gradient_of_zero(case):
    zeros = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    make, _, formula, numbers = CASES[case]
    got = run(make, gradients=[zeros, *GRADIENTS[:2]])
    check(got, expected(formula, gradients=[zeros, *GRADIENTS[:2]], **numbers))


# ------------------------------------------------------------------------------------------------- the objective


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
    got = run(CASES["adam"][0], conf={"naive_conf": {}})
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


# --------------------------------------------------------------------------------------------------- loss scaling


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
        return found["w"].tolist(), found["w-momentum"].tolist(), scale[0], good[0], found["System-Train-TrainStep-job"][0]

    w, v = np.ones(2), np.zeros(2)
    # gradient, then scale and count of good steps after it
    script = [(1, 8, 1), (2, 32, 0), (np.inf, 8, 0), (1, 8, 1), (np.nan, 2, 0), (-np.inf, 1, 0), (np.inf, 1, 0), (3, 1, 1), (1, 4, 0)]
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


# ----------------------------------------------------------------------------------------- gradient accumulation


def train_model(micro: int, batch: int, steps: int = 3, make=lambda: opt.SGD(constant(0.1))):
    """The variables after training a small net, each batch cut into ``micro`` parts, and what the calls returned."""
    flow.clear_default_session()
    config = flow.function_config()
    if micro > 1:
        config.train.num_gradient_accumulation_steps(micro)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.FixedTensorDef((batch // micro, 4)), labels=flow.FixedTensorDef((batch // micro,), dtype=flow.int32)):
        hidden = flow.layers.dense(x, 5, activation=flow.nn.relu, kernel_initializer=flow.random_normal_initializer(), name="a")
        logits = flow.layers.dense(hidden, 3, kernel_initializer=flow.random_normal_initializer(), name="b")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        make().minimize(loss)
        return loss, labels

    rng = np.random.default_rng(0)
    returned = [job(rng.normal(size=(batch, 4)).astype(np.float32), rng.integers(0, 3, batch, np.int32)).get() for _ in range(steps)]
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}, returned


@pytest.mark.parametrize(
    "make",
    [
        lambda: opt.SGD(constant(0.1)),
        lambda: opt.Adam(constant(0.1), grad_clipping=opt.grad_clipping.by_global_norm(0.5)),
        lambda: opt.SGD(constant(0.1), loss_scale_policy=opt.loss_scale.dynamic_loss_scale(2.0**10)),
        lambda: opt.SGD(constant(0.1), loss_scale_factor=16),
    ],
    ids=["momentum", "adam clipped", "dynamic scale", "static scale"],
)
def test_accumulated_gradients_equal_those_of_the_whole_batch(make):
    whole, results = train_model(1, 12, make=make)
    parts, packed = train_model(4, 12, make=make)
    assert list(whole) == list(parts) and parts["System-Train-TrainStep-job"] == 3
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], 1e-4, 1e-6, err_msg=name)
    for (loss, labels), (packed_loss, packed_labels) in zip(results, packed):
        np.testing.assert_allclose(packed_loss, loss, 1e-4, 1e-6)
        np.testing.assert_array_equal(packed_labels, labels)


def test_accumulation_reads_a_source_once_for_each_part(tmp_path):
    from oneflow.core.record import record_pb2 as ofrecord
    from oneflow.data.records import write_records

    feature = lambda i: ofrecord.Feature(float_list=ofrecord.FloatList(value=[i]))  # noqa: E731
    write_records(tmp_path / "part-0", [ofrecord.OFRecord(feature={"x": feature(i)}) for i in range(100)])
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(3)

    @flow.global_function(type="train", function_config=config)
    def job():
        x = flow.data.OFRecordRawDecoder(flow.data.ofrecord_reader(str(tmp_path), batch_size=2), "x", (), flow.float32)
        loss = flow.get_variable("w", (1,), initializer=flow.ones_initializer()) * x
        opt.SGD(constant(0.1), momentum=0).minimize(loss)
        return x

    assert job().get().tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), [1 - 0.1 * 2.5], rtol=1e-6)
    assert job().get().tolist() == [6, 7, 8, 9, 10, 11]


def test_a_predict_job_is_not_cut_into_parts():
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(4)

    @flow.global_function(type="predict", function_config=config)
    def job(x=flow.FixedTensorDef((2,))):
        return x * 2

    assert job(np.ones(2, np.float32)).get().tolist() == [2, 2]


def test_each_part_has_a_dropout_mask_of_its_own():
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.FixedTensorDef((64,))):
        out = flow.nn.dropout(x * flow.get_variable("w", (1,), initializer=flow.ones_initializer()), rate=0.5)
        opt.SGD(constant(0.0), momentum=0).minimize(out)
        return out

    masks = [half for _ in range(3) for half in np.split(job(np.ones(128, np.float32)).get() > 0, 2)]
    assert len({mask.tobytes() for mask in masks}) == len(masks)


# -------------------------------------------------------------------------------- several optimizers, some variables


def test_combined_optimizers():
    def make():
        clipping = opt.grad_clipping.by_global_norm(0.5)
        first = opt.SGDW(cosine(), weight_decay=0.3, grad_clipping=clipping, variables=["fc-weight"])
        second = opt.Adam(constant(0.01), variables=lambda: ["fc-bias"])
        return opt.CombinedOptimizer([first, second])

    alone = [{name: g for name, g in gradient.items() if name == "fc-weight"} for gradient in GRADIENTS]
    clipped = [gradient | one for gradient, one in zip(GRADIENTS, clip(alone, 0.5, False))]
    weight = {n: v for n, v in expected(momentum, ONLY_WEIGHT, gradients=clipped).items() if n.startswith("fc-weight")}
    bias = {n: v for n, v in expected(adam, rates={"fc-bias": lambda t: 0.01}).items() if n.startswith("fc-bias")}
    check(run(make), weight | bias)


def test_combined_optimizers_with_a_loss_scale():
    def make(**more):
        return lambda: opt.CombinedOptimizer(
            [opt.SGD(cosine(), variables=["fc-weight"]), opt.SGD(cosine(), variables=["fc-bias"])], **more
        )

    for more in ({"loss_scale_factor": 64}, {"loss_scale_policy": opt.loss_scale.dynamic_loss_scale(64.0)}):
        got = {name: value for name, value in run(make(**more)).items() if "LossScale" not in name}
        check(got, expected(momentum))


def test_a_variable_named_by_two_optimizers():
    def make():
        return opt.CombinedOptimizer([opt.SGD(cosine(), variables=names) for names in (["fc-bias"], list(SHAPES))])

    with pytest.raises(AssertionError, match="variable 'fc-bias' is named by 2 optimizers"):
        run(make)


def test_combined_optimizers_name_their_variables():
    with pytest.raises(AssertionError, match="each name their variables="):
        opt.CombinedOptimizer([opt.SGD(cosine())])
    with pytest.raises(AssertionError, match="each name their variables="):
        opt.CombinedOptimizer([])


def test_the_loss_scale_of_combined_optimizers_is_given_to_them_together():
    part = opt.SGD(cosine(), variables=["fc-bias"], loss_scale_factor=8)
    with pytest.raises(AssertionError, match="loss scale"):
        opt.CombinedOptimizer([part])


def test_only_the_named_variables_are_updated():
    got = run(lambda: opt.SGD(cosine(), variables=["fc-weight"]))
    want = expected(momentum)
    want["fc-bias"] = FIRST["fc-bias"]
    del want["fc-bias-momentum"]
    check(got, want)


@pytest.mark.parametrize("names", ["fc-weight", ("fc-weight",), lambda: "fc-weight", lambda: iter(["fc-weight"])])
def test_forms_of_variable_names(names):
    got = run(lambda: opt.SGD(cosine(), momentum=0, variables=names))
    check(got, expected(naive) | {"fc-bias": FIRST["fc-bias"]})


def test_an_unknown_variable_is_named():
    with pytest.raises(AssertionError, match="'fc-wieght'.*Did you mean 'fc-weight'"):
        run(lambda: opt.SGD(cosine(), variables=["fc-wieght", "fc-bias"]))


# ------------------------------------------------------------------------------------------------ strides


@pytest.mark.parametrize("make", [opt.SGD, lambda rate: opt.SGD(rate, momentum=0.0), opt.Adam, opt.RMSProp, opt.LARS, opt.LAMB])
def test_a_gradient_may_lie_in_memory_otherwise_than_its_variable(make):
    """Behind a transpose it does; the fused kernels of torch would take it as it lies."""

    def trained(transposed: bool) -> np.ndarray:
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(x=flow.FixedTensorDef((12,))):
            w = flow.get_variable("w", (4, 3) if transposed else (3, 4), initializer=flow.ones_initializer())
            flat = flow.reshape(flow.transpose(w, (1, 0)) if transposed else w, (12,))
            make(opt.PiecewiseConstantScheduler([], [0.1])).minimize(flow.math.square(flat * x))

        for _ in range(2):
            job(np.arange(12, dtype=np.float32))
        return flow.get_all_variables()["w"].numpy()

    np.testing.assert_allclose(trained(True).T, trained(False), 1e-6)


# ------------------------------------------------------------------------------------------------ custom schedules


def custom(make, rates) -> dict[str, np.ndarray]:
    @flow.global_function(type="train")
    def job(gw=flow.FixedTensorDef((3, 2)), gb=flow.FixedTensorDef((2,)), lr=flow.FixedTensorDef((1,))):
        halved = lr * 0.5
        make(opt.CustomScheduler(halved.logical_blob_name)).minimize(objective(variables(), gw, gb))

    for t, gradient in enumerate(GRADIENTS):
        job(gradient["fc-weight"].astype(np.float32), gradient["fc-bias"].astype(np.float32), np.array([2 * rates(t)], np.float32))
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def test_a_rate_that_the_job_computes():
    check(custom(lambda scheduler: opt.SGD(scheduler), rate), expected(momentum))


def test_a_rate_that_the_job_computes_and_bias_correction():
    with pytest.raises(NotImplementedError, match="CustomScheduler.*bias correction"):
        custom(lambda scheduler: opt.Adam(scheduler, do_bias_correction=True), rate)


def test_a_rate_that_no_op_computes():
    @flow.global_function(type="train")
    def job():
        opt.SGD(opt.CustomScheduler("nothing/out")).minimize(flow.get_variable("w", (1,), initializer=flow.ones_initializer()))

    with pytest.raises(AssertionError, match="job 'job' has no blob 'nothing/out'"):
        job()


# --------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "conf, pattern",
    [
        ({"momentum_conf": {"beta1": 0.9}}, "momentum_conf has no key 'beta1'. Did you mean 'beta'"),
        ({"lamb_conf": {}}, r"lamb_conf needs \['beta1', 'beta2', 'epsilon'\]"),
        ({"naive_conf": {}, "clip_conf": {}}, "clip_conf names exactly one of"),
        ({"naive_conf": {}, "clip_conf": {"clip_by_global_norm": {}}}, r"clip_by_global_norm needs \['clip_norm'\]"),
        ({"naive_conf": {}, "weight_decay_conf": {"decay_rate": 1}}, "no key 'decay_rate'. Did you mean 'weight_decay_rate'"),
        ({"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": 1, "includes": {"patterns": []}}}, "Did you mean 'pattern'"),
        ({"naive_conf": 3}, "naive_conf is a dictionary, got int 3"),
        ({"momentum_conf": {"beta": "0.9"}}, "beta is a number >= 0 and <= 1, got '0.9'"),
        ({"adam_conf": {"beta1": None}}, "beta1 is a number >= 0 and < 1, got None"),
        ({"adam_conf": {"do_bias_correction": "no"}}, "do_bias_correction is True or False, got 'no'"),
        ({"naive_conf": {}, "clip_conf": {"clip_by_global_norm": {"clip_norm": "1"}}}, "clip_norm is a number > 0, got '1'"),
        ({"naive_conf": {}, "weight_decay_conf": {"weight_decay_rate": None}}, "weight_decay_rate is a number >= 0, got None"),
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
        (lambda: opt.SGD(cosine(), grad_clipping=1.0), "grad_clipping is flow.optimizer.grad_clipping.by_global_norm.*, got 1.0"),
        (lambda: opt.SGD(cosine(), momentum=-3), "momentum is a number >= 0 and <= 1, got -3"),
        (lambda: opt.SGD(cosine(), momentum=False), "momentum is a number >= 0 and <= 1, got False"),
        (lambda: opt.SGD(cosine(), variables=3), "variables is a list of variable names, .* got 3"),
        (lambda: opt.SGD(cosine(), variables=[3]), r"variables is a list of variable names, .* got \[3\]"),
        (lambda: opt.SGDW(cosine(), weight_decay=-0.1), "weight_decay is a number >= 0, got -0.1"),
        (lambda: opt.SGDW(cosine(), weight_decay=0.1, weight_decay_includes=[3]), r"a list of regular expressions, got \[3\]"),
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


def test_row_wise_updates_leave_rows_without_a_gradient_alone():
    config = flow.function_config()
    config.train.primary_lr(0.1)
    config.train.model_update_conf({"adam_conf": {}})
    config.indexed_slices_optimizer_conf({"enable": True, "include_op_names": {"op_name": ["table"]}})

    @flow.global_function(config)
    def train(rows=flow.FixedTensorDef((2,), dtype=flow.int32)):
        table = flow.get_variable("table", (4, 3), initializer=flow.ones_initializer())
        flow.losses.add_loss(flow.math.reduce_sum(flow.gather(table, rows)))

    w, m, v = np.ones((4, 3)), np.zeros((4, 3)), np.zeros((4, 3))
    for rows in ([0, 2], [2, 2], [3, 0]):
        train(np.array(rows, np.int32))
        g = np.zeros((4, 3))
        np.add.at(g, rows, 1.0)
        used = sorted(set(rows))
        m[used] = 0.9 * m[used] + 0.1 * g[used]
        v[used] = 0.999 * v[used] + 0.001 * g[used] ** 2
        w[used] -= 0.1 * m[used] / (np.sqrt(v[used]) + 1e-8)
    found = flow.get_all_variables()
    np.testing.assert_allclose(found["table"].numpy(), w, rtol=1e-5)
    np.testing.assert_allclose(found["table-m"].numpy(), m, rtol=1e-5)


def test_a_row_wise_configuration_of_another_form_is_refused():
    config = flow.function_config()
    with pytest.raises(ArgumentError, match="indexed_slices_optimizer_conf takes"):
        config.indexed_slices_optimizer_conf({"enable": True, "names": ["table"]})
    with pytest.raises(ArgumentError, match="indexed_slices_optimizer_conf takes"):
        config.indexed_slices_optimizer_conf({"include_op_names": ["table"]})
