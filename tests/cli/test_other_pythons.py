"""The package works with every Python that it says it does: those that are found on this machine read all of its
sources, and run a program if they have torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("python3.11", "python3.12", "python3.13")

READ = """
import pathlib, sys, warnings
warnings.simplefilter("error")
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.py")):
    compile(path.read_text(encoding="utf-8"), str(path), "exec")
"""

PROGRAM = """
import numpy as np
import oneflow as flow
import oneflow.nn as nn
import oneflow.typing as tp

@flow.global_function(type="train")
def train(x: tp.Numpy.Placeholder((8, 4))) -> tp.Numpy:
    loss = flow.math.square(flow.layers.dense(x, 3, kernel_initializer=flow.ones_initializer(), name="dense"))
    flow.optimizer.SGD(flow.optimizer.ConstantScheduler(0.1), momentum=0.9).minimize(loss)
    return loss

model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 2))

class TrainGraph(nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=0.01))

    def build(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        return loss

graph, ones = TrainGraph(), np.ones((8, 4), np.float32)
jobs, graphs = ([float(step().mean()) for _ in range(20)] for step in (lambda: train(ones), lambda: graph(flow.tensor(ones))))
assert jobs[-1] < jobs[0] and graphs[-1] < graphs[0]
print("learned")
"""


def command_of(python: str) -> str:
    """The first interpreter of that name that starts: on the path may be one that only says that it is not chosen."""
    kept_by_pyenv = sorted(Path.home().glob(f".pyenv/versions/*/bin/{python}"))
    for found in (shutil.which(python), *map(str, kept_by_pyenv)):
        if found is not None and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    pytest.skip(f"there is no {python} here")


def run(command: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [command, "-c", code, *arguments], env=environment, capture_output=True, text=True, timeout=250, check=False
    )


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_reads_the_sources_without_a_warning(python: str) -> None:
    done = run(command_of(python), READ, str(ROOT / "src"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_that_has_torch_trains_a_job_and_a_graph(python: str) -> None:
    command = command_of(python)
    if run(
        command, "import torch, numpy, fsspec, google_crc32c; assert torch.__version__.startswith('2.13.0')"
    ).returncode:
        pytest.skip(f"{python} has no torch 2.13 and what else is needed")
    done = run(command, PROGRAM)
    assert done.stdout.strip() == "learned", done.stderr
