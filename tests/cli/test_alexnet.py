"""The AlexNet program and the program that makes its data, run as a reader runs them, on few small pictures."""

from __future__ import annotations

import math
import os
import re
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from warm_python import WARM

import oneflow
from oneflow.data import Parts
from oneflow.engine.data.image import decode

ALEXNET = Path(__file__).parents[2] / "examples" / "alexnet"
PACKAGE_ROOT = Path(oneflow.__file__).parents[1]
LINE = re.compile(r" +(\d+) {2,}(train|eval) loss: +(\S+)")


def run(program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*WARM.command(), str(ALEXNET / program), *arguments]
    env = os.environ | {"PYTHONPATH": str(PACKAGE_ROOT)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with drawn shapes where the program looks for them."""
    root = tmp_path_factory.mktemp("alexnet")
    done = run("make_data.py", "--count", "240", "--size", "96", cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "240 pictures of 10 classes in 8 parts: dataset/example\n"
    return root


def losses(done: subprocess.CompletedProcess[str]) -> list[tuple[int, str, float]]:
    assert done.returncode == 0, done.stderr
    header, *lines = done.stdout.splitlines()
    assert header == f"{'iter':>12}  {'loss type':>12}  {'loss value':>12}"
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), lines
    return [(int(m[1]), m[2], float(m[3])) for m in matches if m]


def test_the_data(place):
    with Parts([place / "dataset" / "example" / f"part-{part}" for part in range(8)]) as parts:
        assert parts.counts == [30] * 8
        features = parts[7].features
        assert sorted(features) == ["class/label", "encoded"]
        assert decode(features["encoded"].values[0]).shape == (96, 96, 3)
        assert {int(record.features["class/label"].values[0]) for record in parts} == set(range(1, 11))


def test_pictures_of_ones_own(tmp_path):
    for name, count in (("cat", 3), ("dog", 2)):
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (8 + i, 9), (i, 2, 3)).save(tmp_path / "own" / name / f"{i}.png")
    done = run("make_data.py", "--folder", "own", "-o", "out", "--parts", "2", cwd=tmp_path)
    assert done.stdout == "5 pictures of 2 classes in 2 parts: out\n", done.stderr
    with Parts([tmp_path / "out" / "part-0", tmp_path / "out" / "part-1"]) as parts:
        assert sorted(int(record.features["class/label"].values[0]) for record in parts) == [1, 1, 1, 2, 2]
    done = run("make_data.py", "--folder", ".", cwd=tmp_path / "own" / "cat")
    assert (done.returncode, "each sub-folder is a class" in done.stderr) == (1, True)


def test_as_published_the_loss_stays_at_its_limit(place):
    found = losses(run("alexnet.py", "-i", "2", cwd=place))
    assert [(i, kind) for i, kind, _ in found] == [(0, "train"), (1, "train")]
    assert [loss for _, _, loss in found] == pytest.approx(
        [46.0517] * 2, abs=1e-3
    )  # -log(1e-20), where no gradient comes through


def test_with_our_flags_it_learns(place):
    found = losses(run("alexnet.py", "-i", "10", "--initializer", "he", "--learning_rate", "2e-4", cwd=place))
    train = [loss for _, kind, loss in found if kind == "train"]
    evaluated = [(i, loss) for i, kind, loss in found if kind == "eval"]
    assert len(train) == 10
    assert [i for i, _ in evaluated] == [9]
    assert train[0] == pytest.approx(math.log(1001), abs=0.5)
    assert sum(train[-4:]) / 4 < math.log(1001) - 1.5
    assert evaluated[-1][1] < math.log(1001) - 1.5


def test_a_missing_data_set_is_one_clear_error(tmp_path):
    done = run("alexnet.py", "-t", "nowhere", cwd=tmp_path)
    assert done.returncode == 1
    assert re.search(
        r"DataError: .*alexnet\.py:\d+: decode_ofrecord: nowhere/part-0: the file cannot be opened", done.stderr
    )


def test_two_devices_print_the_losses_of_one(place):
    flags = ["--initializer", "he", "--learning_rate", "0.0005", "-i", "2"]
    one, two = (losses(run("alexnet.py", "-g", str(devices), *flags, cwd=place)) for devices in (1, 2))
    assert [(step, kind) for step, kind, _ in one] == [(step, kind) for step, kind, _ in two]
    assert [value for *_, value in two] == pytest.approx([value for *_, value in one], rel=1e-4)
