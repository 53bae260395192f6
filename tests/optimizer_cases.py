"""Every optimizer of the table with numbers of its own, its formula in numpy float64, and one-device jobs to run it
in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np
import torch

import oneflow as flow
from oneflow.optimizer.table import OPTIMIZERS

opt = flow.optimizer
STEPS = 6
RATE, DECAY_STEPS = 0.1, 10
SHAPES: dict[str, tuple[int, ...]] = {"fc-weight": (3, 2), "fc-bias": (2,)}
FIRST = {name: np.random.default_rng(1).normal(size=shape) for name, shape in SHAPES.items()}
GRADIENTS = [
    {name: np.random.default_rng(10 + t).normal(size=shape) for name, shape in SHAPES.items()} for t in range(STEPS)
]
DECAY = {"learning_rate_decay": {"cosine_conf": {"decay_batches": DECAY_STEPS}}}
Arrays = dict[str, np.ndarray]


class Given:
    """An initializer that gives exactly these values."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def draw(self, spec: Any, generator: Any) -> torch.Tensor:
        return torch.from_numpy(self.value.astype(spec.dtype.numpy))


def rate(t: int, base: float = RATE) -> float:
    return base * 0.5 * (1 + math.cos(math.pi * t / DECAY_STEPS))


def cosine(base: float = RATE) -> Any:
    return opt.CosineScheduler(base, DECAY_STEPS)


def constant(lr: float) -> Any:
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


# ------------------------------------------------------------------------------------------ the rows, with numbers


@dataclass(frozen=True)
class Case:
    """An optimizer as ``make(scheduler, **more)`` gives it; ``conf`` is the same in dictionary form, None where there
    is none."""

    make: Callable[..., Any]
    formula: Callable[..., np.ndarray]
    conf: dict[str, Any] | None
    numbers: dict[str, Any] = field(default_factory=dict)

    @property
    def decays(self) -> bool:
        """Whether the class takes a weight decay."""
        return "weight_decay" in signature(type(self.make(constant(0.1))).__init__).parameters


def _with(make: Callable[..., Any], **numbers: Any) -> Callable[..., Any]:
    return lambda scheduler, **more: make(scheduler, **numbers, **more)


_BETAS = {"beta1": 0.5, "beta2": 0.8, "epsilon": 0.1}
_CORRECTED = {"do_bias_correction": True}
CASES: dict[str, dict[str, Case]] = {
    "SGD": {
        "naive": Case(_with(opt.SGD, momentum=0), naive, {"naive_conf": {}}),
        "none": Case(_with(opt.SGD, momentum=None), naive, {"naive_conf": {}}),
        "momentum": Case(opt.SGD, momentum, {"momentum_conf": {}}),
        "numbers": Case(_with(opt.SGD, momentum=0.5), momentum, {"momentum_conf": {"beta": 0.5}}, {"beta": 0.5}),
    },
    "SGDW": {
        "naive": Case(_with(opt.SGDW, momentum=0), naive, {"naive_conf": {}}),
        "momentum": Case(opt.SGDW, momentum, {"momentum_conf": {}}),
    },
    "RMSProp": {
        "plain": Case(opt.RMSProp, rmsprop, {"rmsprop_conf": {}}),
        "numbers": Case(
            _with(opt.RMSProp, decay_rate=0.5, epsilon=0.2),
            rmsprop,
            {"rmsprop_conf": {"decay_rate": 0.5, "epsilon": 0.2}},
            {"rho": 0.5, "epsilon": 0.2},
        ),
        "centered": Case(
            _with(opt.RMSProp, decay_rate=0.5, centered=True),
            rmsprop,
            {"rmsprop_conf": {"decay_rate": 0.5, "centered": True}},
            {"rho": 0.5, "centered": True},
        ),
    },
    "LARS": {
        "plain": Case(opt.LARS, lars, {"lars_conf": {}}),
        "numbers": Case(
            _with(opt.LARS, momentum_beta=0.5, epsilon=0.1, lars_coefficient=0.3),
            lars,
            {"lars_conf": {"momentum_beta": 0.5, "epsilon": 0.1, "lars_coefficient": 0.3}},
            {"beta": 0.5, "epsilon": 0.1, "coefficient": 0.3},
        ),
    },
    "Adam": {
        "plain": Case(opt.Adam, adam, {"adam_conf": {}}),
        "corrected": Case(_with(opt.Adam, **_CORRECTED), adam, {"adam_conf": _CORRECTED}, {"correct": True}),
        "numbers": Case(_with(opt.Adam, **_BETAS), adam, {"adam_conf": _BETAS}, _BETAS),
    },
    "AdamW": {
        "plain": Case(opt.AdamW, adam, {"adam_conf": {}}),
        "corrected": Case(_with(opt.AdamW, **_CORRECTED), adam, {"adam_conf": _CORRECTED}, {"correct": True}),
    },
    "LazyAdam": {"plain": Case(opt.LazyAdam, adam, {"lazy_adam_conf": {}}, {"correct": True})},
    "LAMB": {
        "plain": Case(opt.LAMB, lamb, {"lamb_conf": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6}}),
        "numbers": Case(_with(opt.LAMB, **_BETAS), lamb, {"lamb_conf": _BETAS}, _BETAS),
    },
}
ROWS = {row.name: row for row in OPTIMIZERS}


def cases() -> dict[str, Case]:
    """The cases of every row of the table. A row without one is an error."""
    return {f"{name} {kind}": case for name in ROWS for kind, case in CASES[name].items()}


# ---------------------------------------------------------------------------------------------- what should come


def expected(
    formula: Callable[..., np.ndarray],
    decays: Mapping[str, float] | None = None,
    gradients: Sequence[Arrays] | None = None,
    rates: Mapping[str, Callable[[int], float]] | None = None,
    first: Arrays | None = None,
    **numbers: Any,
) -> Arrays:
    """All variables and their state after the steps."""
    weights = dict(first or FIRST)
    states: dict[str, Arrays] = {name: {} for name in weights}
    for t, gradient in enumerate(gradients or GRADIENTS):
        for name in weights:
            lr = (rates or {}).get(name, rate)(t)
            weights[name] = formula(
                weights[name], gradient[name], states[name], lr, (decays or {}).get(name, 0.0), t, **numbers
            )
    return weights | {f"{name}-{key}": value for name, state in states.items() for key, value in state.items()}


def clip(gradients: Sequence[Arrays], norm: float, historical: bool) -> list[Arrays]:
    clipped = []
    for gradient in gradients:
        length = math.sqrt(sum((g**2).sum() for g in gradient.values()))
        factor = min(1 / length, 1 / norm) if historical else min(1, norm / length)
        clipped.append({name: g * factor for name, g in gradient.items()})
    return clipped


def check(got: Arrays, want: Arrays, rtol: float = 2e-5) -> None:
    assert {name for name in got if not name.startswith("System-Train-TrainStep")} == set(want)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], np.broadcast_to(value, got[name].shape), rtol, 1e-6, err_msg=name)


# ------------------------------------------------------------------------------------------------ running our jobs


def variables(**regularizers: Any) -> dict[str, Any]:
    made = {}
    for name, shape in SHAPES.items():
        kind = name.split("-")[1]
        made[name] = flow.get_variable(
            name, shape, initializer=Given(FIRST[name]), model_name=kind, regularizer=regularizers.get(kind)
        )
    return made


def objective(made: dict[str, Any], weight_gradient: Any, bias_gradient: Any) -> Any:
    """A loss of one element whose gradient is what was fed."""
    return flow.math.reduce_sum(made["fc-weight"] * weight_gradient) + flow.math.reduce_sum(
        made["fc-bias"] * bias_gradient
    )


def run(
    optimizer: Callable[[], Any] | None = None,
    conf: dict[str, Any] | None = None,
    gradients: Sequence[Arrays] | None = None,
    setup: Callable[[Any], Any] = lambda config: None,
    **regularizers: Any,
) -> Arrays:
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
