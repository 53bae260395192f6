"""The optimizers of FastNN, as TensorFlow 1 computes them: ``create(name, params, learning_rate, **flags)``.

They are optimizers of ``flow.optim``, and so torch's: they step eagerly and inside an ``nn.Graph``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fastnn import updates
from fastnn.errors import FlagError
from fastnn.flags import TABLE
from oneflow import optim
from oneflow.engine.core.errors import nearest
from oneflow.engine.ops.updates.rows import UpdateRow

Named = Iterable[Tensor] | Iterable[tuple[str, Tensor]]
_GROUP = "Optimizer"
_DEFAULTS = {flag.name: flag.default for flag in TABLE if flag.group == _GROUP and flag.name != "optimizer"} | {
    "max_gradient_norm": None
}
_OTHERS = {flag.name for flag in TABLE} - set(_DEFAULTS)
_WITHOUT_DECAY = re.compile("LayerNorm|layer_norm|bias")
_WEIGHT_DECAY = 0.01


class _RowOptimizer(optim.Optimizer):
    """An optimizer of one row whose numbers are the options of the group."""

    def __init__(self, params: Any, lr: float, clipping: Mapping[str, float], **numbers: float) -> None:
        self._numbers = tuple(numbers)
        super().__init__(params, {"lr": lr, **numbers, **clipping})

    def update_of(self, group: dict[str, Any]) -> tuple[UpdateRow, dict[str, Any]]:
        """The row and its numbers."""
        return self.rows[0], {name: group[name] for name in self._numbers}


class Adam(_RowOptimizer):
    """Adam with TensorFlow's epsilon, which is not corrected."""

    rows = (updates.ADAM,)


class RMSProp(_RowOptimizer):
    """RMSProp with TensorFlow's first mean square of 1, epsilon below the root and rate inside the momentum."""

    rows = (updates.RMSPROP,)


class Ftrl(_RowOptimizer):
    """Follow the regularised leader."""

    rows = (updates.FTRL, updates.FTRL_ROOT)

    def update_of(self, group: dict[str, Any]) -> tuple[UpdateRow, dict[str, Any]]:
        """Returns the row and its numbers; the default power, a square root, has its own row."""
        return self.rows[group["power"] == -0.5], super().update_of(group)[1]


class AdamWeightDecay(_RowOptimizer):
    """Adam without correction, with a decay of its own. Parameters that come with names leave out the decay where the
    name has ``LayerNorm``, ``layer_norm`` or ``bias`` in it."""

    rows = (updates.ADAM_WEIGHT_DECAY,)

    def __init__(
        self, params: list[Tensor], undecayed: list[Tensor], lr: float, clipping: Mapping[str, float], **numbers: float
    ) -> None:
        super().__init__(params, lr, clipping, **numbers)
        for p in undecayed:
            self.state[p]["decay"] = torch.zeros(1, device=p.device)


def create(name: str, params: Named, learning_rate: float, **flags: Any) -> torch.optim.Optimizer:
    """The optimizer ``name`` over parameters, or pairs of a name and a parameter. ``flags`` are those of FastNN, such
    as ``opt_epsilon``; those that are not given have their defaults. With ``max_gradient_norm`` the gradients are
    clipped by their common norm (``clip_grad()``; a graph does it by itself)."""
    if name not in _MAKERS:
        raise FlagError(f"--optimizer is one of {', '.join(_MAKERS)}; got {name!r}.{nearest(name, _MAKERS)}")
    found = _checked(flags)
    norm = found["max_gradient_norm"]
    clipping = {} if norm is None else {"clip_grad_max_norm": norm, "clip_grad_norm_type": 2.0}
    pairs = [item if isinstance(item, tuple) else ("", item) for item in params]
    return _MAKERS[name](pairs, float(learning_rate), clipping, found)


def _checked(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizer's flags; those of other things are left out, unknown ones refused."""
    for name in flags:
        if name not in _DEFAULTS and name not in _OTHERS:
            raise FlagError(f"optimizers have no flag {name!r}.{nearest(name, _DEFAULTS)}")
    return {name: flags.get(name, default) for name, default in _DEFAULTS.items()}


Pairs = list[tuple[str, Tensor]]
Maker = Callable[[Pairs, float, dict[str, float], dict[str, Any]], torch.optim.Optimizer]


def _tensors(pairs: Pairs) -> list[Tensor]:
    return [p for _, p in pairs]


def _sgd(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    return optim.SGD([{"params": _tensors(pairs), **clipping}], lr=lr)


def _momentum(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    return optim.SGD([{"params": _tensors(pairs), **clipping}], lr=lr, momentum=f["momentum"])


def _adagrad(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    first = f["adagrad_initial_accumulator_value"]
    return optim.Adagrad([{"params": _tensors(pairs), **clipping}], lr=lr, initial_accumulator_value=first, eps=0.0)


def _adadelta(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    return optim.Adadelta([{"params": _tensors(pairs), **clipping}], lr=lr, rho=f["adadelta_rho"], eps=f["opt_epsilon"])


def _adam(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    return Adam(_tensors(pairs), lr, clipping, beta1=f["adam_beta1"], beta2=f["adam_beta2"], epsilon=f["opt_epsilon"])


def _rmsprop(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    numbers = {"decay": f["rmsprop_decay"], "momentum": f["rmsprop_momentum"], "epsilon": f["opt_epsilon"]}
    return RMSProp(_tensors(pairs), lr, clipping, **numbers, first_mean_square=1.0)


def _ftrl(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    if f["ftrl_learning_rate_power"] > 0:
        raise FlagError(f"--ftrl_learning_rate_power is at most 0, got {f['ftrl_learning_rate_power']}")
    numbers = {"power": f["ftrl_learning_rate_power"], "l1_strength": f["ftrl_l1"], "l2_strength": f["ftrl_l2"]}
    return Ftrl(_tensors(pairs), lr, clipping, **numbers, first_accumulator=f["ftrl_initial_accumulator_value"])


def _adam_weight_decay(pairs: Pairs, lr: float, clipping: dict[str, float], f: dict[str, Any]) -> torch.optim.Optimizer:
    undecayed = [p for name, p in pairs if _WITHOUT_DECAY.search(name)]
    numbers = {"beta1": f["adam_beta1"], "beta2": f["adam_beta2"], "epsilon": f["opt_epsilon"]}
    return AdamWeightDecay(_tensors(pairs), undecayed, lr, clipping, **numbers, weight_decay=_WEIGHT_DECAY)


_MAKERS: dict[str, Maker] = {
    "adadelta": _adadelta,
    "adagrad": _adagrad,
    "adam": _adam,
    "adamweightdecay": _adam_weight_decay,
    "ftrl": _ftrl,
    "momentum": _momentum,
    "sgd": _sgd,
    "rmsprop": _rmsprop,
}
