"""``train.model_update_conf``: the dictionary form of an optimizer, turned into the same values as ``flow.optimizer``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oneflow.core.errors import ArgumentError, nearest
from oneflow.core.number import each, number, whole
from oneflow.optimizer.grad_clipping import ClipByGlobalNorm, by_global_norm
from oneflow.optimizer.optimizers import LAMB, LARS, SGD, Adam, LazyAdam, Optimizer, RMSProp, WeightDecay
from oneflow.optimizer import schedule, warmup
from oneflow.optimizer.schedule import LrScheduler, WarmUp

# What each dictionary may hold: a key with its default, or REQUIRED.
_REQUIRED = object()
_DECAYING = {"decay_batches": _REQUIRED, "decay_rate": _REQUIRED, "staircase": False}
_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "naive_conf": {},
    "momentum_conf": {"beta": 0.9},
    "rmsprop_conf": {"decay_rate": 0.99, "epsilon": 1e-8, "centered": False},
    "lars_conf": {"momentum_beta": 0.9, "epsilon": 1e-9, "lars_coefficient": 0.0001},
    "adam_conf": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "do_bias_correction": False},
    "lazy_adam_conf": {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    "lamb_conf": {"beta1": _REQUIRED, "beta2": _REQUIRED, "epsilon": _REQUIRED},
}
_DECAYS: dict[str, dict[str, Any]] = {
    "exponential_conf": _DECAYING,
    "inverse_time_conf": _DECAYING,
    "natural_exp_conf": _DECAYING,
    "piecewise_constant_conf": {"boundaries": _REQUIRED, "values": _REQUIRED},
    "piecewise_scaling_conf": {"boundaries": _REQUIRED, "scales": _REQUIRED},
    "polynomial_conf": {"decay_batches": _REQUIRED, "end_learning_rate": 0.0001, "power": 1.0, "cycle": False},
    "cosine_conf": {"decay_batches": _REQUIRED, "alpha": 0.0},
    "linear_cosine_conf": {"decay_batches": _REQUIRED, "num_periods": 0.5, "alpha": 0.0, "beta": 0.001},
}
_WARMUPS: dict[str, dict[str, Any]] = {
    "constant_conf": {"warmup_batches": _REQUIRED, "multiplier": _REQUIRED},
    "linear_conf": {"warmup_batches": _REQUIRED, "start_multiplier": _REQUIRED},
}
_EXTRAS = ("learning_rate_decay", "warmup_conf", "clip_conf", "weight_decay_conf")
# Keys that count steps and have another name in the classes, with the least they may be.
_STEPS = {"decay_batches": 1, "warmup_batches": 0}
_WITHOUT_DECAY = ("rmsprop_conf", "lazy_adam_conf")


def optimizer_from_conf(conf: Mapping[str, Any], primary_lr: float, secondary_lr: float | None = None) -> Optimizer:
    """The optimizer that a ``model_update_conf`` dictionary describes."""
    _known("model_update_conf", conf, [*_OPTIMIZERS, *_EXTRAS])
    kinds = [key for key in conf if key in _OPTIMIZERS]
    if len(kinds) != 1:
        raise ArgumentError(f"model_update_conf names exactly one optimizer of {list(_OPTIMIZERS)}, got {kinds or 'none'}")
    scheduler = _scheduler(conf, primary_lr)
    optimizer = _BUILD[kinds[0]](scheduler, **_numbers(kinds[0], conf[kinds[0]], _OPTIMIZERS[kinds[0]]))
    optimizer.grad_clipping = _clipping(conf.get("clip_conf"))
    optimizer.weight_decay = _weight_decay(conf.get("weight_decay_conf"))
    optimizer.secondary_lr = secondary_lr
    if optimizer.weight_decay.is_set and kinds[0] in _WITHOUT_DECAY:
        raise ArgumentError(f"{kinds[0]} has no weight decay; remove weight_decay_conf or choose another optimizer")
    return optimizer


_BUILD: dict[str, Callable[..., Optimizer]] = {
    "naive_conf": lambda s: SGD(s, momentum=0.0),
    "momentum_conf": lambda s, beta: SGD(s, momentum=number("beta", beta, 0, 1)),
    "rmsprop_conf": RMSProp,
    "lars_conf": LARS,
    "adam_conf": Adam,
    "lazy_adam_conf": LazyAdam,
    "lamb_conf": LAMB,
}


def _scheduler(conf: Mapping[str, Any], base: float) -> LrScheduler:
    start = _warmup(conf.get("warmup_conf"))
    decay = conf.get("learning_rate_decay")
    if decay is None:
        return schedule.ConstantScheduler(base, start)
    kind, n = _one_of("learning_rate_decay", decay, _DECAYS)
    match kind:
        case "exponential_conf":
            return schedule.ExponentialScheduler(base, n["decay_batches"], n["decay_rate"], n["staircase"], start)
        case "inverse_time_conf":
            return schedule.InverseTimeScheduler(base, n["decay_batches"], n["decay_rate"], n["staircase"], start)
        case "natural_exp_conf":
            return schedule.NaturalExpScheduler(base, n["decay_batches"], n["decay_rate"], n["staircase"], start)
        case "piecewise_constant_conf":
            return _piecewise_constant(n, base, start)
        case "piecewise_scaling_conf":
            return _piecewise_scaling(n, base, start)
        case "polynomial_conf":
            return schedule.PolynomialScheduler(base, n["decay_batches"], n["end_learning_rate"], n["power"], n["cycle"], start)
        case "cosine_conf":
            return schedule.CosineScheduler(base, n["decay_batches"], n["alpha"], start)
        case _:
            return schedule.LinearCosineScheduler(base, n["decay_batches"], n["num_periods"], n["alpha"], n["beta"], start)


def _piecewise_constant(n: Mapping[str, Any], base: float, start: WarmUp | None) -> LrScheduler:
    """The dictionary form warms up from primary_lr; the class form from its first value."""
    result = schedule.PiecewiseConstantScheduler(n["boundaries"], n["values"], start)
    result.base_lr = base
    return result


def _piecewise_scaling(n: Mapping[str, Any], base: float, start: WarmUp | None) -> LrScheduler:
    """The dictionary form gives the first scale too; the class form takes it as 1."""
    scales = each("scales", n["scales"], lambda what, value: number(what, value, 0))
    boundaries = each("boundaries", n["boundaries"], whole)
    if len(scales) != len(boundaries) + 1:
        raise ArgumentError(f"{len(boundaries)} boundaries need {len(boundaries) + 1} scales, got {len(scales)}")
    result = schedule.PiecewiseScalingScheduler(base, boundaries, scales[1:], start)
    result.scales = scales
    return result


def _warmup(conf: Any) -> WarmUp | None:
    if conf is None:
        return None
    kind, n = _one_of("warmup_conf", conf, _WARMUPS)
    if kind == "constant_conf":
        return warmup.constant(n["warmup_batches"], n["multiplier"])
    return warmup.linear(n["warmup_batches"], n["start_multiplier"])


def _clipping(conf: Any) -> ClipByGlobalNorm | None:
    if conf is None:
        return None
    _, n = _one_of("clip_conf", conf, {"clip_by_global_norm": {"clip_norm": _REQUIRED, "global_norm": None}})
    return by_global_norm(n["clip_norm"])


def _weight_decay(conf: Any) -> WeightDecay:
    if conf is None:
        return WeightDecay()
    n = _numbers("weight_decay_conf", conf, {"weight_decay_rate": _REQUIRED, "includes": None, "excludes": None})
    rate = number("weight_decay_rate", n["weight_decay_rate"], 0)
    return WeightDecay(rate, _pattern_list(n["includes"]), _pattern_list(n["excludes"]))


def _pattern_list(conf: Any) -> list[str] | None:
    if conf is None:
        return None
    pattern = _numbers("includes/excludes", conf, {"pattern": _REQUIRED})["pattern"]
    return [pattern] if isinstance(pattern, str) else pattern


def _one_of(where: str, conf: Any, table: Mapping[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The one entry of a dictionary that must hold exactly one of the table's keys."""
    _known(where, conf, table)
    if len(conf) != 1:
        raise ArgumentError(f"{where} names exactly one of {list(table)}, got {list(conf)}")
    kind = next(iter(conf))
    return kind, _numbers(kind, conf[kind], table[kind])


def _numbers(where: str, conf: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """The dictionary with defaults filled in; unknown and missing keys are errors."""
    _known(where, conf, table)
    missing = [key for key, default in table.items() if default is _REQUIRED and key not in conf]
    if missing:
        raise ArgumentError(f"{where} needs {missing}")
    steps = {key: whole(key, conf[key], least) for key, least in _STEPS.items() if key in conf}
    return {**table, **conf, **steps}


def _known(where: str, conf: Any, keys: Any) -> None:
    if not isinstance(conf, Mapping):
        raise ArgumentError(f"{where} is a dictionary, got {type(conf).__name__} {conf!r}")
    for key in conf:
        if key not in keys:
            raise ArgumentError(f"{where} has no key {key!r}.{nearest(str(key), keys)} It takes {list(keys)}")
