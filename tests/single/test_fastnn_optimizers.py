"""The optimizers of FastNN against TensorFlow's numbers, against the formulas in float64, eagerly and in a graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oneflow as flow
from fastnn import optimizers
from fastnn.flags import FlagError

START = [1.0, -2.0, 0.5, 0.0]
GRADIENTS = [
    [0.1, -0.2, 0.3, 0.0],
    [0.5, 0.5, -0.5, 0.25],
    [-1.0, 0.0, 2.0, -0.001],
    [0.05, -0.4, 0.0, 1.0],
    [3.0, -3.0, 0.1, 0.1],
]
CHANGING = [0.1, 0.1, 0.05, 0.05, 0.2]

# What TensorFlow's kernels gave after the five gradients: name, flags, rates, weights.
TENSORFLOW = [
    ("sgd", {}, [0.1] * 5, [0.735, -1.69, 0.31, -0.1349]),
    ("momentum", {"momentum": 0.9}, CHANGING, [0.44003296, -1.3940160, 0.01219901, -0.33256799]),
    ("rmsprop", {}, [0.01] * 5, [0.98489779, -1.9820315, 0.46616721, -0.02144608]),
    ("rmsprop", {"opt_epsilon": 1e-10}, CHANGING, [0.43439212, -1.5703073, 0.28603077, -0.22803894]),
    ("adam", {}, [0.01] * 5, [0.99957192, -1.9995515, 0.49908990, -0.00051444]),
    ("adam", {"opt_epsilon": 1e-3}, [0.1] * 5, [0.84269702, -1.9211305, 0.29882091, -0.24303898]),
    ("adagrad", {}, [0.1] * 5, [0.87478703, -1.8755981, 0.40689686, -0.16375218]),
    ("adadelta", {}, [0.01] * 5, [0.97816545, -1.9739860, 0.48269808, -0.01324632]),
    ("adadelta", {"opt_epsilon": 1e-6}, [1.0] * 5, [0.98587722, -1.9866549, 0.49244037, -0.01138092]),
    ("ftrl", {}, [0.1] * 5, [-0.07867552, -0.18528965, 0.04415874, -0.16375218]),
    ("ftrl", {"ftrl_l1": 0.05, "ftrl_l2": 0.1}, [0.1] * 5, [-0.08114967, -0.15915905, 0.02891957, -0.14715867]),
    (
        "ftrl",
        {"ftrl_learning_rate_power": -0.7, "ftrl_initial_accumulator_value": 0.2, "ftrl_l1": 0.01, "ftrl_l2": 0.02},
        [0.1] * 5,
        [-0.06660286, -0.14738171, 0.04416519, -0.15341577],
    ),
]


def stepped(name, flags, rates, gradients, start=START, variable="weights"):
    w = torch.nn.Parameter(torch.tensor(start))
    optimizer = optimizers.create(name, [(variable, w)], rates[0], **flags)
    for rate, gradient in zip(rates, gradients):
        optimizer.param_groups[0]["lr"] = rate
        w.grad = torch.tensor(gradient, dtype=torch.float32)
        if flags.get("max_gradient_norm"):
            optimizer.clip_grad()
        optimizer.step()
    return w.detach().numpy()


@pytest.mark.parametrize(
    ("name", "flags", "rates", "expected"), TENSORFLOW, ids=[f"{n} {i}" for i, (n, *_) in enumerate(TENSORFLOW)]
)
def test_five_steps_are_tensorflows(name, flags, rates, expected):
    np.testing.assert_allclose(
        stepped(name, flags, rates, GRADIENTS), expected, rtol=5e-6, atol=2e-7
    )  # its beta powers are float32


def formula(name, w, g, s, lr, t, f):
    """One step in float64."""
    eps = f.get("opt_epsilon", 1.0)
    if name == "sgd":
        return w - lr * g
    if name == "momentum":
        s["a"] = f.get("momentum", 0.9) * s.get("a", 0) + g
        return w - lr * s["a"]
    if name == "rmsprop":
        s["s"] = 0.9 * s.get("s", 1.0) + 0.1 * g * g
        s["m"] = 0.9 * s.get("m", 0) + lr * g / np.sqrt(s["s"] + eps)
        return w - s["m"]
    if name in ("adam", "adamweightdecay"):
        s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
        s["v"] = 0.999 * s.get("v", 0) + 0.001 * g * g
        if name == "adamweightdecay":
            return w - lr * (s["m"] / (np.sqrt(s["v"]) + eps) + f.get("decay", 0.01) * w)
        return w - lr * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * s["m"] / (np.sqrt(s["v"]) + eps)
    if name == "adagrad":
        s["a"] = s.get("a", 0.1) + g * g
        return w - lr * g / np.sqrt(s["a"])
    if name == "adadelta":
        s["a"] = 0.95 * s.get("a", 0) + 0.05 * g * g
        d = np.sqrt(s.get("u", 0) + eps) / np.sqrt(s["a"] + eps) * g
        s["u"] = 0.95 * s.get("u", 0) + 0.05 * d * d
        return w - lr * d
    n = s.get("n", 0.1)
    s["n"] = n + g * g
    s["z"] = s.get("z", 0) + g - (np.sqrt(s["n"]) - np.sqrt(n)) / lr * w
    return np.where(np.abs(s["z"]) > 0, -s["z"] / (np.sqrt(s["n"]) / lr), 0.0)


NAMES = ["adadelta", "adagrad", "adam", "adamweightdecay", "ftrl", "momentum", "sgd", "rmsprop"]


def ten_steps(name, f):
    numbers = np.random.default_rng(3)
    start, gradients = numbers.normal(size=7), numbers.normal(size=(10, 7))
    rates = [0.1 / (1 + t) for t in range(10)]
    w, s = start, {}
    for t, (rate, g) in enumerate(zip(rates, gradients), 1):
        w = formula(name, w, g, s, rate, t, f)
    return start, gradients, rates, w


@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_are_the_formula(name):
    start, gradients, rates, expected = ten_steps(name, {"opt_epsilon": 0.01})
    np.testing.assert_allclose(
        stepped(name, {"opt_epsilon": 0.01}, rates, gradients, start.astype(np.float32)), expected, rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize("variable", ["conv/biases", "a/LayerNorm/gamma", "layer_norm_1/beta"])
def test_adamweightdecay_leaves_these_names_undecayed(variable):
    start, gradients, rates, expected = ten_steps("adamweightdecay", {"decay": 0.0})
    np.testing.assert_allclose(
        stepped("adamweightdecay", {}, rates, gradients, start.astype(np.float32), variable),
        expected,
        rtol=2e-5,
        atol=2e-6,
    )


class Training(flow.nn.Graph):
    """The loss is <w, x>, so x is the gradient of w."""

    def __init__(self, module, optimizer):
        super().__init__()
        self.module = module
        self.add_optimizer(optimizer)

    def build(self, x):
        loss = (self.module.w * x).sum() + (self.module.bias * x).sum()
        loss.backward()
        return loss


class Weights(torch.nn.Module):
    def __init__(self, start):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
        self.bias = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_steps_as_the_formula(name):
    start, gradients, rates, expected = ten_steps(name, {"opt_epsilon": 0.01})
    module = Weights(start)
    optimizer = optimizers.create(name, module.named_parameters(), 0.1, opt_epsilon=0.01)
    graph = Training(module, optimizer)
    for rate, g in zip(rates, gradients):
        optimizer.param_groups[0]["lr"] = rate
        graph(torch.tensor(g, dtype=torch.float32))
    np.testing.assert_allclose(module.w.detach().numpy(), expected, rtol=2e-5, atol=2e-6)
    without = ten_steps(name, {"opt_epsilon": 0.01, "decay": 0.0})[3]
    np.testing.assert_allclose(module.bias.detach().numpy(), without, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["sgd", "adamweightdecay"])
def test_gradients_are_clipped_by_their_common_norm(name):
    a, b = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = optimizers.create(name, [("a/weights", a), ("b/biases", b)], 1.0, max_gradient_norm=2.5)
    a.grad, b.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    optimizer.clip_grad()
    np.testing.assert_allclose(np.concatenate([a.grad, b.grad]), [1.5, 0.0, 0.0, 2.0], rtol=1e-6)


def test_the_state_of_an_optimizer_is_saved_and_loaded():
    start, gradients, rates, expected = ten_steps("rmsprop", {})
    w = torch.nn.Parameter(torch.tensor(start, dtype=torch.float32))
    optimizer = optimizers.create("rmsprop", [w], 0.1)
    for t, (rate, g) in enumerate(zip(rates, gradients)):
        if t == 5:
            saved = optimizer.state_dict()
            w = torch.nn.Parameter(w.detach().clone())
            optimizer = optimizers.create("rmsprop", [w], 0.1)
            optimizer.load_state_dict(saved)
        optimizer.param_groups[0]["lr"] = rate
        w.grad = torch.tensor(g, dtype=torch.float32)
        optimizer.step()
    np.testing.assert_allclose(w.detach().numpy(), expected, rtol=2e-5, atol=2e-6)


def test_an_unknown_optimizer_is_told_with_the_nearest_name():
    with pytest.raises(
        FlagError, match=r"--optimizer is one of adadelta, .*; got 'rmspropp'. Did you mean 'rmsprop'\?"
    ):
        optimizers.create("rmspropp", [torch.nn.Parameter(torch.zeros(1))], 0.1)


def test_an_unknown_flag_is_told_with_the_nearest_name():
    with pytest.raises(FlagError, match=r"optimizers have no flag 'adam_beta'. Did you mean 'adam_beta2'\?"):
        optimizers.create("adam", [torch.nn.Parameter(torch.zeros(1))], 0.1, adam_beta=0.5)


def test_a_power_of_ftrl_above_zero_is_refused():
    with pytest.raises(FlagError, match=r"--ftrl_learning_rate_power is at most 0, got 0.5"):
        optimizers.create("ftrl", [torch.nn.Parameter(torch.zeros(1))], 0.1, ftrl_learning_rate_power=0.5)
