"""The programs of examples/tensors that train in a graph, as a user runs them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from checkpoint_jobs import files
from warm_python import WARM

import oneflow
from oneflow.data import mnist_files

PROGRAMS = Path(__file__).parents[2] / "examples" / "tensors"
LINE = re.compile(r"step (\d+)  loss (\S+)")


def run(folder: Path, program: str, *arguments: str) -> str:
    """What it prints."""
    environment = os.environ | {"PYTHONPATH": str(Path(oneflow.__file__).parents[1]), "ONEFLOW_MNIST_DIR": str(mnist_files.SUBSET)}
    done = subprocess.run(
        [*WARM.command(), str(PROGRAMS / program), *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(printed: str) -> list[float]:
    return [float(loss) for _, loss in LINE.findall(printed)]


def tensors(folder: Path) -> dict[str, bytes]:
    """What a program has saved, bit by bit."""
    return {name: data for name, data in files(folder / "model").items() if name != "pickled_data"}


@pytest.mark.slow
def test_graph_mnist_learns(tmp_path):
    printed = run(tmp_path, "mnist_graph.py", "--out", "run")
    assert losses(printed)[-1] < losses(printed)[0] < 1.5
    accuracy = re.search(r"accuracy (\S+) %", printed)
    assert accuracy is not None and float(accuracy[1]) > 90


@pytest.mark.slow
def test_a_gpt_learns_in_micro_batches_of_bfloat16(tmp_path):
    found = losses(run(tmp_path, "accumulate_amp.py", "--steps", "40"))
    assert found[-1] < 0.6 * found[0]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mnist_graph.py", "accumulate_amp.py"])
def test_a_resumed_run_equals_one_that_never_stopped(program, tmp_path):
    whole = run(tmp_path, program, "--out", "whole", "--steps", "10")
    run(tmp_path, program, "--out", "parts", "--steps", "5")
    rest = run(tmp_path, program, "--out", "parts", "--steps", "5", "--resume")
    assert rest.splitlines() == whole.splitlines() and len(losses(rest)) == 1
    assert tensors(tmp_path / "parts") == tensors(tmp_path / "whole") and len(tensors(tmp_path / "whole")) > 40
