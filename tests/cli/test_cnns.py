"""The programs of examples/cnns, run as a reader runs them, on drawn pictures and on synthetic data."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from warm_python import WARM

import oneflow
from oneflow.data import Parts
from oneflow.engine.data.image import decode

CNNS = Path(__file__).parents[2] / "examples" / "cnns"
PACKAGE_ROOT = Path(oneflow.__file__).parents[1]
TRAIN_LINE = re.compile(
    r"train: epoch (\d+), iter (\d+), loss: (\d+\.\d{6}), top_1: ([01]\.\d{6}), top_k: ([01]\.\d{6}), samples/s: \d+\.\d{3}"
)
VAL_LINE = re.compile(
    r"validation: epoch (\d+), iter (\d+), top_1: ([01]\.\d{6}), top_k: ([01]\.\d{6}), samples/s: \d+\.\d{3}"
)

# AlexNet is the quickest to compile of the networks, and its dropout tells whether a resumed run draws what the first
# would have.
NETWORK = ["--model=alexnet", "--image_size=67", "--resize_shorter=72", "--num_classes=5"]
VALIDATION = [
    "--val_data_dir=data/imagenet/ofrecord/validation",
    "--val_data_part_num=1",
    "--num_val_examples=20",
    "--val_batch_size_per_device=10",
]
TRAINING = [
    *NETWORK, *VALIDATION, "--train_data_dir=data/imagenet/ofrecord/train", "--train_data_part_num=2", "--num_examples=40",
    "--batch_size_per_device=10", "--model_update=momentum", "--mom=0.9", "--learning_rate=0.01", "--warmup_epochs=1",
    "--loss_print_every_n_iter=2", "--num_epoch=4", "--save_init=False",
]  # fmt: skip


def environment() -> dict[str, str]:
    """With one thread for ops so small: more of them only wait for each other, at length where a machine has other
    work."""
    return os.environ | {"PYTHONPATH": str(PACKAGE_ROOT), "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [*WARM.command(), *command] if command[0].endswith(".py") else list(command)
    return subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=280, check=False)


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of a program after its block of arguments."""
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    stamp = next(i for i, line in enumerate(lines) if line.startswith("Time stamp: "))
    assert lines[0] == lines[2] == "=" * 66 and lines[stamp - 1] == "-" * 66
    return lines[stamp + 1 :]


def without_rate(line: str) -> str:
    return line.split(", samples/s")[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A copy of the programs, with drawn records where they look for them."""
    root = tmp_path_factory.mktemp("cnns") / "cnns"
    shutil.copytree(CNNS, root, ignore=shutil.ignore_patterns("__pycache__", "output", "data"))
    done = run("tools/make_mini.py", "--num_examples=40", "--num_val_examples=20", "--size=80", "--parts=2", cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "train: 40 images of 5 classes in 2 parts: data/imagenet/ofrecord/train"
    return root


@pytest.fixture(scope="module")
def trained(place) -> list[str]:
    """What a run of four epochs tells."""
    return told(run("of_cnn_train_val.py", *TRAINING, "--model_save_dir=whole", "--log_dir=log", cwd=place))


def test_the_drawn_records_are_pictures_of_named_classes(place):
    folder = place / "data" / "imagenet" / "ofrecord" / "train"
    with Parts([folder / "part-00000", folder / "part-00001"]) as parts:
        assert parts.counts == [20, 20]
        assert decode(parts[0].features["encoded"].values[0]).shape == (80, 80, 3)
        labels = [int(record.features["class/label"].values[0]) for record in parts]
    assert np.bincount(labels).tolist() == [8] * 5
    assert (folder / "labels.txt").read_text() == "0:boat\n1:goldfish\n2:house\n3:star\n4:tree\n"
    with Image.open(place / "data" / "fish.jpg") as fish:
        assert fish.size == (80, 80)


def test_training_prints_its_lines_and_learns_the_drawn_pictures(trained):
    assert trained[:3] == [
        "Loading data from data/imagenet/ofrecord/train",
        "Loading data from data/imagenet/ofrecord/validation",
        "Init model on demand.",
    ]
    steps = [(int(m[1]), int(m[2]), float(m[3])) for line in trained if (m := TRAIN_LINE.fullmatch(line))]
    assert [step[:2] for step in steps] == [(epoch, i) for epoch in range(4) for i in (2, 4)]
    assert [int(m[1]) for line in trained if (m := VAL_LINE.fullmatch(line))] == [0, 1, 2, 3]
    saved = [line for line in trained if line.startswith("Saving")]
    assert saved == [f"Saving model to whole/snapshot_epoch_{epoch}." for epoch in range(4)]
    assert len(trained) == 3 + 8 + 4 + 4
    assert min(loss for _, _, loss in steps[-3:]) < steps[0][2] - 0.1, trained


def test_a_run_leaves_a_table_a_curve_and_tensorboard_files(trained, place):
    with open(place / "log" / "summary.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["epoch", "iter", "legend", "note", "value", "rank"]
    losses = [m[3] for line in trained if (m := TRAIN_LINE.fullmatch(line))]
    assert [row[4] for row in rows if row[2] == "train_loss"] == losses
    assert {row[2] for row in rows} == {
        *(f"train_{what}" for what in ("loss", "top_1", "top_5", "throughput")),
        *(f"validation_{what}" for what in ("top_1", "top_5", "throughput")),
    }
    with Image.open(place / "log" / "loss.png") as curve:
        assert curve.format == "PNG"
    assert list((place / "log" / "tensorboard").glob("events.out.tfevents.*"))


def test_a_resumed_run_is_the_run_that_was_never_stopped(trained, place):
    resumed = told(
        run(
            sys.executable,
            "of_cnn_train_val.py",
            *TRAINING,
            "--model_load_dir=whole/snapshot_epoch_1",
            "--model_save_dir=again",
            "--log_dir=log",
            cwd=place,
        )
    )
    assert resumed[0] == "Restoring model from whole/snapshot_epoch_1."
    lines = [without_rate(line) for line in resumed if TRAIN_LINE.fullmatch(line) or VAL_LINE.fullmatch(line)]
    whole = [without_rate(line) for line in trained if re.match(r"(train|validation): epoch [23]", line)]
    assert lines == whole
    first, again = place / "whole" / "snapshot_epoch_3", place / "again" / "snapshot_epoch_3"
    for name in ("conv1-weight", "fc2-weight-momentum", "System-Train-TrainStep-TrainNet", "System-DataState-TrainNet"):
        assert (first / name / "out").read_bytes() == (again / name / "out").read_bytes(), name
    with open(place / "log" / "summary.csv", newline="") as file:
        steps = [tuple(row[:2]) for row in csv.reader(file) if row[2] == "train_loss"]
    assert steps == [(str(epoch), i) for epoch in range(4) for i in ("2", "4")], "each step once"


def test_a_run_that_is_over_or_would_save_twice_ends_at_once(trained, place):
    load = "--model_load_dir=whole/snapshot_epoch_3"
    done = run("of_cnn_train_val.py", *TRAINING, load, cwd=place)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "whole/snapshot_epoch_3 has been trained for 4 epochs; give a larger --num_epochs than 4 to go on",
    )
    done = run("of_cnn_train_val.py", *TRAINING, "--model_save_dir=whole", cwd=place)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "whole/snapshot_epoch_0 exists and would be saved again; give another --model_save_dir",
    )


def test_evaluation_repeats_the_last_validation(trained, place):
    lines = told(
        run(
            "of_cnn_evaluate.py",
            *NETWORK,
            *VALIDATION,
            "--num_epochs=2",
            "--model_load_dir=whole/snapshot_epoch_3",
            cwd=place,
        )
    )
    assert lines[0] == "Restoring model from whole/snapshot_epoch_3."
    last = [m for line in trained if (m := VAL_LINE.fullmatch(line))][-1]
    passes = [m for line in lines if (m := VAL_LINE.fullmatch(line))]
    assert [(m[1], m[2], m[3], m[4]) for m in passes] == [("0", last[2], last[3], last[4])] * 2


def test_inference_prints_two_lines_for_a_picture(trained, place):
    path, line = told(run("sh", "inference.sh", *NETWORK, "--model_load_dir=whole/snapshot_epoch_3", cwd=place))
    assert path == "data/fish.jpg"
    probability, name = line.split(" ", 1)
    assert 0.2 <= float(probability) <= 1 and name in ("boat", "goldfish", "house", "star", "tree")


def test_inference_goes_through_a_folder_and_tells_the_likeliest_five(trained, place):
    folder = place / "some"
    folder.mkdir()
    for name in ("a.png", "b.JPG"):
        Image.new("L", (40, 30), 90).save(folder / name, "PNG")
    (folder / "notes.txt").write_text("no picture")
    (place / "names.txt").write_text("1:n01443537 goldfish, Carassius auratus\n")
    flags = [
        *NETWORK,
        "--model_load_dir=whole/snapshot_epoch_3",
        "--image_path=some",
        "--top_k=5",
        "--label_file=names.txt",
    ]
    lines = told(run("of_cnn_inference.py", *flags, cwd=place))
    assert [lines[0], lines[6]] == ["some/a.png", "some/b.JPG"] and len(lines) == 12
    probabilities = [float(line.split()[0]) for line in lines[1:6]]
    assert probabilities == sorted(probabilities, reverse=True) and sum(probabilities) == pytest.approx(1, abs=1e-4)
    names = {line.split(" ", 1)[1] for line in lines[1:6]}
    assert names == {"goldfish, Carassius auratus", "class 0", "class 2", "class 3", "class 4"}


def test_a_snapshot_becomes_an_onnx_model_that_computes_the_same(trained, place):
    pytest.importorskip("onnxruntime")
    lines = told(run("sh", "resnet2onnx.sh", *NETWORK, "--model_load_dir=whole/snapshot_epoch_3", cwd=place))
    assert lines[:2] == ["Convert to onnx success! >>  onnx/model/snapshot_epoch_3.onnx", "Are the results equal? Yes"]
    assert re.fullmatch(r"Class: (boat|goldfish|house|star|tree); score: [01]\.\d+", lines[2]) and len(lines) == 3
    assert (place / "onnx" / "model" / "snapshot_epoch_3.onnx").stat().st_size > 1 << 20


def test_a_snapshot_of_another_network_is_one_clear_message(trained, place):
    done = run(
        "of_cnn_inference.py",
        "--model=mobilenetv2",
        "--image_path=data/fish.jpg",
        "--model_load_dir=whole/snapshot_epoch_3",
        cwd=place,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "--model_load_dir=whole/snapshot_epoch_3: checkpoint 'whole/snapshot_epoch_3' has no variable 'Mobilenetv2-"
    )


def test_a_killed_run_leaves_whole_snapshots_only(place):
    command = [sys.executable, "of_cnn_train_val.py", *TRAINING, "--model_save_dir=killed", "--log_dir=killed_log"]
    with subprocess.Popen(
        command, cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        saves = 0
        for line in process.stdout:
            saves += line.startswith("Saving model")
            if saves == 2:  # the first is done, the second being written
                process.send_signal(signal.SIGKILL)
                break
    found = sorted(folder.name for folder in (place / "killed").iterdir() if folder.name.startswith("snapshot_"))
    assert found[0] == "snapshot_epoch_0"
    assert all((place / "killed" / name / "snapshot_done").exists() for name in found)


def test_synthetic_training_falls_to_the_floor_of_label_smoothing(tmp_path):
    shutil.copytree(CNNS, tmp_path / "cnns", ignore=shutil.ignore_patterns("__pycache__", "output", "data"))
    flags = ["--image_size=32", "--batch_size_per_device=8", "--num_examples=32", "--num_epochs=5"]
    flags += ["--save_epoch_interval=99", "--model_save_dir=saved"]
    lines = told(run("sh", "train.sh", *flags, cwd=tmp_path / "cnns"))
    assert lines[:2] == ["Loading synthetic data."] * 2
    assert lines[2:4] == ["Saving model to saved/snapshot_initial_model.", "Init model on demand."]
    steps = [m for line in lines if (m := TRAIN_LINE.fullmatch(line))]
    assert len(steps) == 20 and lines[-1] == "Saving model to saved/snapshot_epoch_4."
    floor = -(0.9001 * np.log(0.9001) + 999 * 0.0001 * np.log(0.0001))
    assert floor - 1e-6 < float(steps[-1][3]) < floor + 0.3
    assert float(steps[0][3]) > 6 and (steps[-1][4], steps[-1][5]) == ("1.000000", "1.000000")


def test_mixed_precision_trains_with_a_dynamic_loss_scale(place):
    flags = [
        *NETWORK,
        "--num_examples=4",
        "--batch_size_per_device=2",
        "--num_epochs=1",
        "--model_save_dir=half",
        "--save_init=False",
    ]
    done = run("sh", "train_fp16.sh", *flags, cwd=place)
    losses = [float(m[3]) for line in told(done) if (m := TRAIN_LINE.fullmatch(line))]
    assert len(losses) == 2 and np.isfinite(losses).all()
    assert "job 'TrainNet' uses mixed precision on the CPU, as bfloat16" in done.stderr
    snapshot = place / "half" / "snapshot_epoch_0"
    scale = np.fromfile(snapshot / "System-Train-DynamicLossScale-TrainNet-LossScale" / "out", np.float32)
    assert scale.shape == (1,) and 1 <= scale[0] <= 2.0**30
    assert "kFloat" in (snapshot / "fc1-weight" / "meta").read_text()


def test_the_archives_of_ilsvrc2012_become_folders_by_synset(tmp_path):
    for synset in ("n01440764", "n01443537"):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{synset}_1.JPEG")
        with tarfile.open(tmp_path / f"{synset}.tar", "w") as tar:
            tar.add(tmp_path / f"{synset}_1.JPEG", f"{synset}_1.JPEG")
    with tarfile.open(tmp_path / "train.tar", "w") as tar:
        for synset in ("n01440764", "n01443537"):
            tar.add(tmp_path / f"{synset}.tar", f"{synset}.tar")
    with tarfile.open(tmp_path / "val.tar", "w") as tar:
        tar.add(tmp_path / "n01443537_1.JPEG", "ILSVRC2012_val_00000001.JPEG")
    done = run("sh", str(CNNS / "tools" / "extract_ilsvrc2012.sh"), "train.tar", "val.tar", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")) == [
        "train/n01440764/n01440764_1.JPEG",
        "train/n01443537/n01443537_1.JPEG",
        "validation/ILSVRC2012_val_00000001.JPEG",
    ]
    (tmp_path / "labels.txt").write_text("n01443537\n")
    done = run(
        "sh",
        str(CNNS / "tools" / "make_ofrecord.sh"),
        "out",
        "records",
        "--parts",
        "1",
        "--labels",
        "labels.txt",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    with Parts([tmp_path / "records" / "validation" / "part-00000"]) as parts:
        assert parts[0].features["class/label"].values.tolist() == [1]
    assert run("sh", str(CNNS / "tools" / "extract_ilsvrc2012.sh"), cwd=tmp_path).returncode == 2
