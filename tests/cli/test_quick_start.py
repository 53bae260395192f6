"""The quick start's programs, run one after the other as a reader of the tutorial runs them."""

import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from warm_python import WARM

import oneflow
from oneflow.engine.data.formats import mnist_files
from oneflow.engine.data.formats.mnist_files import read_mnist

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGE_ROOT = Path(oneflow.__file__).parents[1]
SUBSET = Path(mnist_files.__file__).parent / "mnist"


def write_mnist(folder: Path, images: int) -> None:
    """The first images of the shipped subset, so that the tutorial's fifty epochs are short."""
    mnist = read_mnist(SUBSET)
    parts = (mnist.train_images[:images], mnist.train_labels[:images], mnist.test_images[:100], mnist.test_labels[:100])
    folder.mkdir()
    for name, array in zip(mnist_files.SHA256, parts, strict=True):
        header = struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape)
        (folder / name).write_bytes(gzip.compress(header + np.ascontiguousarray(array).tobytes()))


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A copy of the quick start's folder beside a small MNIST."""
    root = tmp_path_factory.mktemp("quick_start")
    shutil.copytree(
        EXAMPLES / "quick_start", root / "code", ignore=shutil.ignore_patterns("__pycache__", "lenet_models_*")
    )
    write_mnist(root / "mnist", images=500)
    return root


def run(place: Path, *command: str, python: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    env = os.environ | {
        "PYTHONPATH": str(PACKAGE_ROOT),
        "ONEFLOW_MNIST_DIR": str(place / "mnist"),
        "ONEFLOW_OFFLINE": "1",
    }
    return subprocess.run(
        [*(python or WARM.command()), *command],
        cwd=place / "code",
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def trained(place) -> subprocess.CompletedProcess[str]:
    done = run(place, "lenet_train.py", python=[sys.executable])
    assert done.returncode == 0, done.stderr
    return done


def test_training_prints_losses_and_saves(place, trained):
    *losses, last = trained.stdout.splitlines()
    assert last == "model saved"
    assert len(losses) == 50  # batches 0, 20, 40 ... of each epoch, and an epoch has five
    assert all(re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", loss) for loss in losses)
    assert float(losses[-1]) < 0.1
    assert (place / "code" / "lenet_models_1" / "conv1-weight" / "out").stat().st_size == 32 * 25 * 4


def test_evaluation_prints_the_accuracy(place, trained):
    done = run(place, "lenet_eval.py")
    assert done.returncode == 0, done.stderr
    match = re.fullmatch(r"accuracy: (\d+\.\d)%\n", done.stdout)
    assert match, done.stdout
    assert float(match[1]) > 95


@pytest.mark.parametrize("arguments", [[], ["./9.png"]])
def test_prediction_of_a_picture(place, trained, arguments):
    done = run(place, "lenet_test.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "predict:9\n"


def test_training_twice_does_not_overwrite_the_model(place, trained):
    before = (place / "code" / "lenet_models_1" / "conv1-weight" / "out").read_bytes()
    done = run(place, "-c", "import oneflow as flow, lenet_train; flow.train.CheckPoint().save('./lenet_models_1')")
    assert done.returncode != 0
    assert "lenet_models_1" in done.stderr
    assert (place / "code" / "lenet_models_1" / "conv1-weight" / "out").read_bytes() == before


def test_mnist_program(place):
    done = run(place, str(EXAMPLES / "mnist" / "mnist.py"), "--max_steps", "12", "--epochs", "3", "--out", "run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == ["epoch 1", "epoch 2", "epoch 3"]
    assert all(re.fullmatch(r"epoch \d: loss \d+\.\d{4}, test accuracy \d+\.\d\d%", line) for line in lines[:-1])
    assert lines[-1] == "model saved to run/model"
    assert (place / "code" / "run" / "loss.png").read_bytes()[:4] == b"\x89PNG"
    assert (place / "code" / "run" / "model" / "dense2-bias" / "out").stat().st_size == 40
    assert done.stderr == ""
