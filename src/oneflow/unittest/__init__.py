"""``flow.unittest``: the test case that test files of job functions are written on, and decorators that say how many
devices they need.

Tests marked ``skip_unless_1n2d`` run where ``ONEFLOW_TEST_DEVICE_NUM=2``, and so on; see ``env``.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import unittest
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from oneflow.engine.job.function import clear_default_session, enable_eager_execution
from oneflow.unittest import env

__all__ = [
    "TestCase", "env", "num_nodes_required", "register_test_cases", "skip_unless_1n1d", "skip_unless_1n2d", "skip_unless_1n4d", "skip_unless_2n1d",
    "skip_unless_2n2d", "skip_unless_2n4d",
]  # fmt: skip

_NODES = "_oneflow_num_nodes_required"


class TestCase(unittest.TestCase):
    """Every test begins with an empty session, in eager execution where ``ONEFLOW_TEST_ENABLE_EAGER`` is 1."""

    def setUp(self) -> None:
        clear_default_session()
        enable_eager_execution(env.eager_execution_enabled())


def _skip_unless(nodes: int, devices: int) -> Callable[[], Callable[[Any], Any]]:
    """A decorator that skips where the run has another number of machines or devices."""

    def decorator() -> Callable[[Any], Any]:
        fits = env.node_size() == nodes and env.device_num() == devices
        needs = f"needs ONEFLOW_TEST_DEVICE_NUM={devices} on {nodes} machine{'s' if nodes > 1 else ''}"
        return (
            (lambda test: test)
            if fits
            else unittest.skip(f"{needs}, the run has {env.device_num()} on {env.node_size()}")
        )

    decorator.__doc__ = (
        f"Skips a test, or a test case, unless the run has {nodes} machine(s) with {devices} device(s) each."
    )
    return decorator


skip_unless_1n1d = _skip_unless(1, 1)
skip_unless_1n2d = _skip_unless(1, 2)
skip_unless_1n4d = _skip_unless(1, 4)
skip_unless_2n1d = _skip_unless(2, 1)
skip_unless_2n2d = _skip_unless(2, 2)
skip_unless_2n4d = _skip_unless(2, 4)


def num_nodes_required(num_nodes: int) -> Callable[[Any], Any]:
    """Notes how many machines a test function needs; ``register_test_cases`` chooses by it."""

    def note(function: Any) -> Any:
        setattr(function, _NODES, num_nodes)
        return function

    return note


def register_test_cases(
    scope: MutableMapping[str, Any],
    directory: str | os.PathLike[str],
    filter_by_num_nodes: Callable[[int], bool],
    base_class: type[unittest.TestCase] = unittest.TestCase,
    test_case_mixin: type = TestCase,
) -> None:
    """Puts into ``scope`` a test case for every file ``test_*.py`` of a folder, made of its functions
    ``test_*(test_case)``.

    ``filter_by_num_nodes`` is asked with the number of machines that a function needs, 1 if it says nothing.
    """
    bases = (test_case_mixin,) if issubclass(test_case_mixin, base_class) else (test_case_mixin, base_class)
    for path in sorted(Path(directory).glob("test_*.py")):
        tests = {
            name: function
            for name, function in vars(_loaded(path)).items()
            if name.startswith("test_") and inspect.isfunction(function)
        }
        chosen = {
            name: function for name, function in tests.items() if filter_by_num_nodes(getattr(function, _NODES, 1))
        }
        if chosen:
            title = "Test" + "".join(word.capitalize() for word in path.stem.split("_")[1:])
            scope[title] = type(title, bases, {**chosen, "__module__": scope.get("__name__", path.stem)})


def _loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
