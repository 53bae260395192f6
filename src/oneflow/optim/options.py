"""What the options of optimizers must be: functions of a name and a value that give the value in one form, or raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import flag, number

CLIPPING = ("clip_grad_max_norm", "clip_grad_norm_type")


def at_least_0(name: str, value: Any) -> float:
    return number(name, value, 0)


def fraction(name: str, value: Any) -> float:
    """From 0 to below 1."""
    return number(name, value, 0, below=1)


def betas(name: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ArgumentError(f"{name} is two numbers such as (0.9, 0.999), got {value!r}")
    return fraction("the first of betas", value[0]), fraction("the second of betas", value[1])


def _max_norm(name: str, value: Any) -> float | None:
    return None if value is None else number(name, value, above=0)


def _norm_type(name: str, value: Any) -> float | None:
    if value is None or value in (float("inf"), "inf"):
        return None if value is None else float("inf")
    return number(name, value, above=0)


COMMON: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        "lr": at_least_0,
        "weight_decay": at_least_0,
        "lr_scale": at_least_0,
        "fused": flag,
        "contiguous_params": flag,
        "clip_grad_max_norm": _max_norm,
        "clip_grad_norm_type": _norm_type,
    }
)
"""Those that groups of every optimizer may have."""
