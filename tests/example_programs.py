"""The programs and networks of examples/cnns, for tests: a folder of programs, not a package that could be imported by
its name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

CNNS = Path(__file__).parents[1] / "examples" / "cnns"


def load(*names: str) -> list[ModuleType]:
    """Modules of the programs, which import each other by plain names; afterwards these names are free again."""
    before = set(sys.modules)
    sys.path.insert(0, str(CNNS))
    try:
        return [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(CNNS))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(CNNS)):
                del sys.modules[name]


[_MODELS] = load("models")
MODELS: dict[str, Any] = _MODELS.MODELS
Options: Any = _MODELS.Options


def used(rng: np.random.Generator, name: str, value: np.ndarray) -> np.ndarray:
    """A variable as it may be after some training: scales and statistics that no layer has at its beginning, so that
    all of them count."""
    if name.endswith(("gamma", "moving_variance")):
        return rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
    if name.endswith(("beta", "moving_mean", "bias")):
        return rng.uniform(-0.1, 0.1, value.shape).astype(value.dtype)
    return value
