"""``train.model_update_conf``: the dictionary form of an optimizer, turned into the same values as
``flow.optimizer``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oneflow.engine.core.errors import ArgumentError, nearest
from oneflow.engine.core.number import number, whole
from oneflow.optimizer.grad_clipping import ClipByGlobalNorm, by_global_norm
from oneflow.optimizer.optimizers import Optimizer, WeightDecay
from oneflow.optimizer.schedule import ConstantScheduler, LrScheduler, WarmUp
from oneflow.optimizer.table import OPTIMIZER_FORMS, REQUIRED, SCHEDULE_FORMS, WARMUP_FORMS, Form

_CLIPPING = Form(
    "clip_by_global_norm",
    {"clip_norm": REQUIRED, "global_norm": None},
    lambda clip_norm, **_: by_global_norm(clip_norm),
)
_EXTRAS = ("learning_rate_decay", "warmup_conf", "clip_conf", "weight_decay_conf")
# Keys that count steps and have another name in the classes, with the least they may be.
_STEPS = {"decay_batches": 1, "warmup_batches": 0}


def optimizer_from_conf(conf: Mapping[str, Any], primary_lr: float, secondary_lr: float | None = None) -> Optimizer:
    """The optimizer that a ``model_update_conf`` dictionary describes."""
    _known("model_update_conf", conf, [*OPTIMIZER_FORMS, *_EXTRAS])
    kinds = [key for key in conf if key in OPTIMIZER_FORMS]
    if len(kinds) != 1:
        raise ArgumentError(
            f"model_update_conf names exactly one optimizer of {list(OPTIMIZER_FORMS)}, got {kinds or 'none'}"
        )
    form = OPTIMIZER_FORMS[kinds[0]]
    scheduler = _scheduler(conf, primary_lr)
    optimizer: Optimizer = form.build(scheduler, **_numbers(form.key, conf[form.key], form.fields))
    optimizer.grad_clipping = _clipping(conf.get("clip_conf"))
    optimizer.weight_decay = _weight_decay(conf.get("weight_decay_conf"))
    optimizer.secondary_lr = secondary_lr
    if optimizer.weight_decay.is_set and not form.decays:
        raise ArgumentError(f"{form.key} has no weight decay; remove weight_decay_conf or choose another optimizer")
    return optimizer


def _scheduler(conf: Mapping[str, Any], base: float) -> LrScheduler:
    start = _warmup(conf.get("warmup_conf"))
    decay = conf.get("learning_rate_decay")
    if decay is None:
        return ConstantScheduler(base, start)
    form, numbers = _one_of("learning_rate_decay", decay, SCHEDULE_FORMS)
    return form.build(base, start, **numbers)


def _warmup(conf: Any) -> WarmUp | None:
    if conf is None:
        return None
    form, numbers = _one_of("warmup_conf", conf, WARMUP_FORMS)
    return form.build(**numbers)


def _clipping(conf: Any) -> ClipByGlobalNorm | None:
    if conf is None:
        return None
    form, numbers = _one_of("clip_conf", conf, {_CLIPPING.key: _CLIPPING})
    return form.build(**numbers)


def _weight_decay(conf: Any) -> WeightDecay:
    if conf is None:
        return WeightDecay()
    n = _numbers("weight_decay_conf", conf, {"weight_decay_rate": REQUIRED, "includes": None, "excludes": None})
    rate = number("weight_decay_rate", n["weight_decay_rate"], 0)
    return WeightDecay(rate, _pattern_list(n["includes"]), _pattern_list(n["excludes"]))


def _pattern_list(conf: Any) -> list[str] | None:
    if conf is None:
        return None
    pattern = _numbers("includes/excludes", conf, {"pattern": REQUIRED})["pattern"]
    return [pattern] if isinstance(pattern, str) else pattern


def _one_of(where: str, conf: Any, table: Mapping[str, Form]) -> tuple[Form, dict[str, Any]]:
    """The one entry of a dictionary that must hold exactly one of the table's keys: its form, and what it holds."""
    _known(where, conf, table)
    if len(conf) != 1:
        raise ArgumentError(f"{where} names exactly one of {list(table)}, got {list(conf)}")
    kind = next(iter(conf))
    return table[kind], _numbers(kind, conf[kind], table[kind].fields)


def _numbers(where: str, conf: Any, table: Mapping[str, Any]) -> dict[str, Any]:
    """The dictionary with defaults filled in; unknown and missing keys are errors."""
    _known(where, conf, table)
    missing = [key for key, default in table.items() if default is REQUIRED and key not in conf]
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
