"""The learning rate of FastNN as a pure function of the step and the flags."""

from __future__ import annotations

from typing import Any

from fastnn.errors import FlagError
from fastnn.flags import TABLE
from oneflow.engine.core.errors import nearest

_NAMES = (
    "learning_rate",
    "warmup_steps",
    "warmup_scheme",
    "decay_scheme",
    "learning_rate_decay_factor",
    "luong_halving",
    "learning_rate_decay_type",
    "end_learning_rate",
    "stop_at_step",
)
_FLAGS = {flag.name: flag for flag in TABLE if flag.name in _NAMES}
_OTHERS = {flag.name for flag in TABLE} - set(_FLAGS)

# When a scheme begins, as a part of all steps (numerator, denominator), and into how many decays the rest is cut.
_SCHEMES = {"luong234": ((2, 3), 4), "luong5": ((1, 2), 5), "luong10": ((1, 2), 10)}


def learning_rate(step: int, **flags: Any) -> float:
    """The rate of the update that follows ``step`` updates. ``flags`` are those of FastNN; those that are not given
    have their defaults."""
    f = _checked(flags)
    base, kind = f["learning_rate"], f["learning_rate_decay_type"]
    if kind == "fixed":
        return base
    rate = _warmed_up(step, base, f["warmup_steps"], f["warmup_scheme"])
    start, interval, factor = _decays(f)
    if step < start or not interval:
        return rate
    if kind == "exponential":
        return rate * factor ** ((step - start) // interval)
    end = f["end_learning_rate"]
    return (rate - end) * (1.0 - min(step - start, interval) / interval) + end


def _warmed_up(step: int, base: float, steps: int, scheme: str) -> float:
    if scheme != "t2t" or step >= steps:
        return base
    return base * 0.01 ** ((steps - step) / steps)


def _decays(f: dict[str, Any]) -> tuple[int, int, float]:
    """The step of the first decay interval, its length (0: no decay) and what each decay multiplies by."""
    scheme, steps = f["decay_scheme"], f["stop_at_step"]
    if not scheme:
        return steps, 0, 1.0
    (numerator, denominator), count = _SCHEMES[scheme]
    start = steps * numerator // denominator
    return start, (steps - start) // count, 0.5 if f["luong_halving"] else f["learning_rate_decay_factor"]


def _checked(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags of the schedule; those of other things are left out, unknown ones refused."""
    for name in flags:
        if name not in _FLAGS and name not in _OTHERS:
            raise FlagError(f"the learning rate has no flag {name!r}.{nearest(name, _FLAGS)}")
    found = {name: flag.checked(flags[name]) if name in flags else flag.default for name, flag in _FLAGS.items()}
    for name in ("warmup_steps", "stop_at_step"):
        if found[name] < 0:
            raise FlagError(f"--{name} is at least 0, got {found[name]}")
    return found
