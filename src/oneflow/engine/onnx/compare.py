"""ONNX Runtime on given inputs, and how far what it gives is from what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oneflow.engine.core.errors import RunError


@dataclass(frozen=True)
class Difference:
    """How far one output of the model is from the job's: the largest difference, and where it is."""

    output: str
    largest: float
    place: tuple[int, ...]
    is_close: bool


@dataclass(frozen=True)
class Equality:
    """The outcome of a check that held: one difference for each output, all within the tolerance."""

    differences: tuple[Difference, ...]

    @property
    def largest(self) -> float:
        """The largest difference of any element."""
        return max(difference.largest for difference in self.differences)


def run_model(
    runtime: Any, path: str, feeds: dict[str, np.ndarray], provider: str = "CPUExecutionProvider", optimize: bool = True
) -> tuple[list[str], list[np.ndarray]]:
    """The names of a model's outputs, and what ONNX Runtime computes for them."""
    options = runtime.SessionOptions()
    if not optimize:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3  # errors only: they are raised
    try:
        session = runtime.InferenceSession(path, options, providers=[provider])
        known = {value.name for value in session.get_inputs()}
        found = session.run(None, {name: array for name, array in feeds.items() if name in known})
    except Exception as error:  # ONNX Runtime's errors have no public class
        raise RunError(f"ONNX Runtime cannot run {path!r}: {error}") from None
    return [value.name for value in session.get_outputs()], found


_ROUNDING = 16
"""Units of the last place of an output's largest value: so far apart are two orders of the same sum where terms cancel
each other."""


def difference(name: str, expected: np.ndarray, found: np.ndarray, rtol: float, atol: float, whose: str) -> Difference:
    """How far two arrays are apart; of another shape or dtype is an error."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        raise RunError(
            f"output {name!r} of the model is {found.dtype}{found.shape}, {whose} is {expected.dtype}{expected.shape}; "
            "is it the model of something else?"
        )
    finite = (
        np.abs(expected[np.isfinite(expected)].astype(np.float64))
        if np.issubdtype(expected.dtype, np.floating)
        else np.zeros(0)
    )
    rounding = _ROUNDING * float(np.finfo(expected.dtype).eps) * float(finite.max()) if finite.size else 0.0
    close = bool(np.allclose(found, expected, rtol, max(atol, rounding), equal_nan=True))
    # Equal infinities and values that are no numbers in both are no difference; in one alone they are the largest.
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        apart = np.where(
            same, 0.0, np.nan_to_num(np.abs(found.astype(np.float64) - expected.astype(np.float64)), nan=np.inf)
        )
    place = tuple(int(i) for i in np.unravel_index(np.argmax(apart), apart.shape))
    return Difference(name, float(apart[place]), place, close)


def described(difference: Difference) -> str:
    return f"the largest difference is {difference.largest:.3g}, in {difference.output!r} at {difference.place}"
