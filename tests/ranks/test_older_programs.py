"""The programs of examples/older_programs: on two devices the losses of one, and each learns what its made data has to
teach."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "older_programs"

# The steps, and for each training in them what the losses begin above and end below.
LEARNS: dict[str, tuple[int, list[tuple[int, int, float, float]]]] = {
    "bert": (45, [(0, 45, 3.0, 0.9), (45, 60, 0.6, 0.68)]),
    "boxes": (30, [(0, 30, 1.0, 0.5)]),
    "dcgan": (30, [(30, 60, 1.35, 1.2)]),
    "faces": (30, [(0, 30, 10.0, 1.0)]),
    "gpt2": (30, [(0, 30, 3.0, 1.0)]),
    "resnet_2020": (30, [(0, 30, 1.3, 0.9)]),
    "wide_and_deep": (40, [(0, 40, 0.65, 0.5)]),
}


def program(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"older_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_program_is_tried() -> None:
    assert sorted(LEARNS) == sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", LEARNS)
def test_a_program_learns_on_one_device_and_the_same_on_two(name: str) -> None:
    steps, parts = LEARNS[name]
    train = program(name).train
    alone, together = np.array(train(1, steps)), np.array(train(2, steps))
    np.testing.assert_allclose(together, alone, rtol=2e-4, atol=2e-4)
    for first, end, above, below in parts:
        assert alone[first] > above and alone[end - 3 : end].mean() < below, alone[first:end]
