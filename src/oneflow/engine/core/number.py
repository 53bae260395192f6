"""Numbers and switches that users give: Python's own or numpy's, checked where they are written, and made Python's
own."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from oneflow.engine.core.errors import ArgumentError

T = TypeVar("T")


def real(what: str, value: Any) -> int | float:
    """Any number but a truth value; whole ones stay ints."""
    if not _is_real(value):
        raise ArgumentError(f"{what} is a number, got {value!r}")
    found = as_whole(value)
    return float(value) if found is None else found


def number(
    what: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """A finite number, at least ``low``, at most ``high``, ``above`` one number and ``below`` another."""
    if not (_is_real(value) and math.isfinite(value) and _lies(value, low, high, above, below)):
        raise ArgumentError(f"{what} is a number{_range(low, high, above, below)}, got {value!r}")
    return float(value)


def whole(what: str, value: Any, low: int | None = None, high: int | None = None, *, above: int | None = None) -> int:
    """A whole number, at least ``low``, at most ``high`` and ``above`` another."""
    found = as_whole(value)
    if found is None or not _lies(found, low, high, above, None):
        raise ArgumentError(f"{what} is an int{_range(low, high, above, None)}, got {value!r}")
    return found


def as_whole(value: Any) -> int | None:
    """``value`` as an int if it is a whole number of any kind, else None."""
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def wholes(value: Any) -> tuple[int, ...] | None:
    """The elements of a list or tuple of whole numbers as ints; None for anything else."""
    if not isinstance(value, (list, tuple)):
        return None
    found = tuple(number for number in map(as_whole, value) if number is not None)
    return found if len(found) == len(value) else None


def each(what: str, values: Any, check: Callable[[str, Any], T]) -> tuple[T, ...]:
    """``check`` of every element of a list, tuple, range or array."""
    if not isinstance(values, (list, tuple, range, np.ndarray)):
        raise ArgumentError(f"{what} is a list of numbers, got {values!r}")
    return tuple(check(f"an element of {what}", value) for value in values)


def flag(what: str, value: Any) -> bool:
    """True or False; 1 and 0 mean the same."""
    if isinstance(value, (bool, np.bool_)) or as_whole(value) in (0, 1):
        return bool(value)
    raise ArgumentError(f"{what} is True or False, got {value!r}")


def seed(value: Any) -> int:
    """The start of a random series: an int of 64 bits."""
    found = as_whole(value)
    if found is None or not -(2**63) <= found < 2**63:
        raise ArgumentError(f"a seed is an int of 64 bits, got {value!r}")
    return found


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def _lies(value: Any, low: float | None, high: float | None, above: float | None, below: float | None) -> bool:
    return (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
    )


def _range(low: float | None, high: float | None, above: float | None, below: float | None) -> str:
    bounds = ((">=", low), (">", above), ("<=", high), ("<", below))
    words = [f"{sign} {bound}" for sign, bound in bounds if bound is not None]
    return " " + " and ".join(words) if words else ""
