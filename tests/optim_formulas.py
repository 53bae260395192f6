"""The optimizers of ``flow.optim`` written out in numpy float64: what ten steps of each must give, eager and in a
graph.

Each formula takes a weight, its gradient, its state (a dict that starts empty), the rate, the number of the step from 1
on, and options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray


def sgd(w, g, s, lr, t, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, maximize=False):
    d = (-g if maximize else g) + weight_decay * w
    if momentum:
        s["v"] = momentum * s["v"] + (1 - dampening) * d if "v" in s else d
        d = d + momentum * s["v"] if nesterov else s["v"]
    return w - lr * d


def _adam(w, g, s, t, betas, eps, amsgrad, do_bias_correction):
    """The direction of Adam."""
    b1, b2 = betas
    s["m"] = b1 * s.get("m", 0) + (1 - b1) * g
    s["v"] = b2 * s.get("v", 0) + (1 - b2) * g * g
    s["max"] = np.maximum(s.get("max", 0), s["v"])
    c1, c2 = (1 - b1**t, 1 - b2**t) if do_bias_correction else (1, 1)
    return (s["m"] / c1) / (np.sqrt((s["max"] if amsgrad else s["v"]) / c2) + eps)


def adam(w, g, s, lr, t, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, do_bias_correction=True):
    return w - lr * _adam(w, g + weight_decay * w, s, t, betas, eps, amsgrad, do_bias_correction)


def adamw(w, g, s, lr, t, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, do_bias_correction=True):
    return w - lr * (_adam(w, g, s, t, betas, eps, amsgrad, do_bias_correction) + weight_decay * w)


def adagrad(w, g, s, lr, t, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10):
    d = g + weight_decay * w
    s["sum"] = s.get("sum", initial_accumulator_value) + d * d
    return w - lr / (1 + (t - 1) * lr_decay) * d / (np.sqrt(s["sum"]) + eps)


def adadelta(w, g, s, lr, t, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=False):
    d = (-g if maximize else g) + weight_decay * w
    s["s"] = rho * s.get("s", 0) + (1 - rho) * d * d
    change = np.sqrt(s.get("u", 0) + eps) / np.sqrt(s["s"] + eps) * d
    s["u"] = rho * s.get("u", 0) + (1 - rho) * change * change
    return w - lr * change


def rmsprop(w, g, s, lr, t, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    d = g + weight_decay * w
    s["s"] = alpha * s.get("s", 0) + (1 - alpha) * d * d
    s["a"] = alpha * s.get("a", 0) + (1 - alpha) * d
    s["v"] = momentum * s.get("v", 0) + lr * d / np.sqrt(s["s"] - (s["a"] ** 2 if centered else 0) + eps)
    return w - s["v"]


def lamb(w, g, s, lr, t, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, adam_w_mode=True, do_bias_correction=True):
    if not adam_w_mode:
        g, weight_decay = g + weight_decay * w, 0.0
    d = _adam(w, g, s, t, betas, eps, False, do_bias_correction)
    w_norm, d_norm = np.linalg.norm(w), np.linalg.norm(d)
    trust = w_norm / d_norm if w_norm > 0 and d_norm > 0 else 1.0
    return w - lr * trust * (d + weight_decay * w)


@dataclass(frozen=True)
class OptimCase:
    """``flow.optim.<name>(params, lr, **options)`` and its formula, which takes the same options."""

    name: str
    formula: Callable[..., Array]
    lr: float = 0.1
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 2e-5


_BETAS = {"betas": (0.5, 0.8), "eps": 0.01}
CASES: dict[str, OptimCase] = {
    "SGD": OptimCase("SGD", sgd),
    "SGD maximize": OptimCase("SGD", sgd, options={"maximize": True, "weight_decay": 0.1}),
    "SGD momentum": OptimCase("SGD", sgd, options={"momentum": 0.9, "weight_decay": 0.1}),
    "SGD dampening": OptimCase(
        "SGD", sgd, options={"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "maximize": True}
    ),
    "SGD nesterov": OptimCase("SGD", sgd, options={"momentum": 0.8, "nesterov": True}),
    "Adam": OptimCase("Adam", adam),
    "Adam numbers": OptimCase("Adam", adam, options={**_BETAS, "weight_decay": 0.1}),
    "Adam uncorrected": OptimCase("Adam", adam, lr=0.01, options={"do_bias_correction": False, "eps": 1e-4}),
    "Adam amsgrad": OptimCase("Adam", adam, options={**_BETAS, "amsgrad": True, "weight_decay": 0.1}),
    "AdamW": OptimCase("AdamW", adamw, options={"weight_decay": 0.1}),
    "AdamW uncorrected": OptimCase(
        "AdamW", adamw, lr=0.01, options={**_BETAS, "weight_decay": 0.1, "do_bias_correction": False}
    ),
    "AdamW amsgrad": OptimCase("AdamW", adamw, options={**_BETAS, "amsgrad": True, "weight_decay": 0.1}),
    "Adagrad": OptimCase("Adagrad", adagrad),
    "Adagrad numbers": OptimCase(
        "Adagrad",
        adagrad,
        options={"lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 0.01},
    ),
    "Adadelta": OptimCase("Adadelta", adadelta, lr=1.0),
    "Adadelta numbers": OptimCase(
        "Adadelta", adadelta, lr=0.5, options={"rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}
    ),
    "RMSprop": OptimCase("RMSprop", rmsprop),
    "RMSprop numbers": OptimCase("RMSprop", rmsprop, options={"alpha": 0.6, "eps": 0.1, "weight_decay": 0.1}),
    "RMSprop momentum": OptimCase("RMSprop", rmsprop, options={"momentum": 0.8, "eps": 0.1, "weight_decay": 0.1}),
    "RMSprop centered": OptimCase("RMSprop", rmsprop, options={"centered": True, "alpha": 0.6, "eps": 0.1}),
    "RMSprop centered momentum": OptimCase(
        "RMSprop", rmsprop, options={"centered": True, "momentum": 0.8, "alpha": 0.6, "eps": 0.1}
    ),
    "LAMB": OptimCase("LAMB", lamb, options={"weight_decay": 0.1}),
    "LAMB coupled": OptimCase("LAMB", lamb, options={**_BETAS, "weight_decay": 0.1, "adam_w_mode": False}),
    "LAMB uncorrected": OptimCase("LAMB", lamb, lr=0.01, options={**_BETAS, "do_bias_correction": False}),
}


def trained(
    case: OptimCase,
    weights: Sequence[Array],
    gradients: Sequence[Sequence[Array]],
    rates: Sequence[float] | None = None,
    **more: Any,
):
    """The weights after one step with each of the gradients, at rates that may differ from step to step."""
    weights = [np.asarray(w, np.float64) for w in weights]
    states: list[dict[str, Any]] = [{} for _ in weights]
    for t, step in enumerate(gradients):
        lr = case.lr if rates is None else rates[t]
        weights = [
            case.formula(w, np.asarray(g, np.float64), s, lr, t + 1, **{**case.options, **more})
            for w, g, s in zip(weights, step, states)
        ]
    return weights


def clipped(gradients: Sequence[Array], max_norm: float, norm_type: float) -> list[Array]:
    """Gradients scaled by max_norm / (norm + 1e-6) where that is below 1."""
    norm = np.linalg.norm(np.concatenate([np.ravel(g) for g in gradients]), norm_type)
    return [g * min(1.0, max_norm / (norm + 1e-6)) for g in gradients]
