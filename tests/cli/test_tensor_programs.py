"""The programs of examples/tensors, as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from checkpoint_jobs import files
from warm_python import WARM

import oneflow
from oneflow.engine.data.formats import mnist_files

PROGRAMS = Path(__file__).parents[2] / "examples" / "tensors"
LINE = re.compile(r"epoch (\d+)  loss (\S+)  accuracy (\S+) %")


def run(folder: Path, program: str, *arguments: str) -> list[tuple[int, float, float]]:
    """Epoch, loss and accuracy of each line that it prints."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(oneflow.__file__).parents[1]),
        "ONEFLOW_MNIST_DIR": str(mnist_files.SUBSET),
    }
    done = subprocess.run(
        [*WARM.command(), str(PROGRAMS / program), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    found = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
    return [(int(match[1]), float(match[2]), float(match[3])) for match in found if match]


def tensors(folder: Path) -> dict[str, bytes]:
    """The weights and states that a program has saved, bit by bit."""
    return {name: data for name, data in files(folder / "model").items() if name != "pickled_data"}


@pytest.mark.slow
def test_eager_mnist_learns_and_a_resumed_run_equals_one_that_never_stopped(tmp_path):
    whole = run(tmp_path, "mnist_eager.py", "--out", "whole", "--epochs", "2")
    assert [epoch for epoch, _, _ in whole] == [1, 2]
    assert whole[1][1] < whole[0][1] < 1.5 and whole[1][2] > 90
    first = run(tmp_path, "mnist_eager.py", "--out", "parts", "--epochs", "1")
    second = run(tmp_path, "mnist_eager.py", "--out", "parts", "--epochs", "1", "--resume")
    assert first + second == whole and len(tensors(tmp_path / "whole")) > 40
    assert tensors(tmp_path / "parts") == tensors(tmp_path / "whole")
