"""The networks of examples/cnns, for tests: a folder of programs, not a package that could be imported by its name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[3] / "examples" / "cnns" / "models"


def _load() -> ModuleType:
    """The folder under a name of its own: ``models`` may be anybody's."""
    spec = importlib.util.spec_from_file_location("cnns_models", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)])
    assert spec is not None and spec.loader is not None
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_MODULE = _load()
MODELS: dict[str, Any] = _MODULE.MODELS
Options: Any = _MODULE.Options


def used(rng: np.random.Generator, name: str, value: np.ndarray) -> np.ndarray:
    """A variable as it may be after some training: scales and statistics that no layer has at its beginning, so that all of them count."""
    if name.endswith(("gamma", "moving_variance")):
        return rng.uniform(0.5, 1.5, value.shape).astype(value.dtype)
    if name.endswith(("beta", "moving_mean", "bias")):
        return rng.uniform(-0.1, 0.1, value.shape).astype(value.dtype)
    return value
