"""The tutorial of LiBai as a user runs it, the tools around it, and runs that are killed.

``LIBAI_KILLS=20`` kills a run at twenty moments in place of three.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import until
from warm_python import WARM

import oneflow as flow
from oneflow.engine.data.formats import mnist_files

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "examples" / "libai_mnist" / "configs" / "config.py"
QUICK = ("dataloader.train.num_workers=0", "dataloader.test.0.num_workers=0")
LINE = re.compile(
    r"lb.utils.events\]:  eta: \d+:\d\d:\d\d  iteration: (\d+)/(\d+)  consumed_samples: (\d+)  total_loss: (\S+)  time: \S+ s/iter  "
    r"data_time: \S+ s/iter total_throughput: \S+ samples/s lr: (\d\.\d\de-\d\d)"
)


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    return os.environ | {
        "PYTHONPATH": path,
        "ONEFLOW_MNIST_DIR": str(mnist_files.SUBSET),
        "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }


def run(folder: Path, *command: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-3000:]
    return done


def train(folder: Path, *arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    return run(folder, *WARM.command(), ROOT / "tools" / "train_net.py", *arguments, status=status)


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.json").read_text().splitlines()]


@pytest.mark.slow
def test_the_tutorial_learns_is_evaluated_again_and_its_saved_config_runs(tmp_path):
    done = train(tmp_path, "--config-file", TUTORIAL, *QUICK, "train.train_epoch=3", "train.evaluation.eval_period=50")
    lines = [found.groups() for found in map(LINE.search, done.stdout.splitlines()) if found]
    assert lines[-1][:3] == ("117", "118", "15104") and float(lines[-1][3]) < 1 < 2 < float(
        lines[0][3]
    )  # ceil(5000 * 3 / 128) iterations
    out = tmp_path / "output" / "MNIST"
    accuracies = [line["Acc@1"] for line in metrics(out) if "Acc@1" in line]
    assert len(accuracies) == 3 and accuracies[-1] > 85
    found = {path.name for path in out.iterdir() if not path.name.startswith("events.out")}
    assert found == {
        "config.yaml",
        "last_checkpoint",
        "log.txt",
        "metrics.json",
        "model_best",
        "model_final",
        "plan.html",
    }
    saved = ["--config-file", "output/MNIST/config.yaml", "--eval-only", "train.load_weight=output/MNIST/model_final"]
    evaluated = run(tmp_path, *WARM.command(), "-m", "libai.train", *saved, status=1)
    assert (
        "there is no module 'modeling'. Start from the project's folder" in evaluated.stderr
        and "Traceback" not in evaluated.stderr
    )
    evaluated = run(
        TUTORIAL.parents[1],
        *WARM.command(),
        "-m",
        "libai.train",
        "--config-file",
        out / "config.yaml",
        "--eval-only",
        f"train.load_weight={out / 'model_final'}",
        f"train.output_dir={tmp_path / 'again'}",
    )
    assert f"copypaste: Acc@1={accuracies[-1]}" in evaluated.stdout


@pytest.mark.slow
def test_two_processes_by_train_sh_are_one_with_the_same_global_batch(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        os.environ["PORT"] = str(free.getsockname()[1])
    try:
        run(
            tmp_path,
            ROOT / "tools" / "train.sh",
            ROOT / "tools" / "train_net.py",
            TUTORIAL,
            "2",
            "--fast-dev-run",
            *QUICK,
            "train.output_dir=two",
            "train.train_micro_batch_size=64",
        )
    finally:
        del os.environ["PORT"]
    train(tmp_path, "--config-file", TUTORIAL, "--fast-dev-run", *QUICK, "train.output_dir=one")
    one, two = metrics(tmp_path / "one"), metrics(tmp_path / "two")
    assert len(one) == len(two) == 21  # 20 iterations, and what is evaluated at the end
    for left, right in zip(one, two):
        for name in left.keys() & {"total_loss", "Acc@1", "lr"}:
            assert left[name] == pytest.approx(right[name], rel=1e-5), (name, left)
    assert (tmp_path / "two" / "log.txt.rank1").exists()
    # The checkpoint of two goes on with one.
    for folder in ("one", "two"):
        train(
            tmp_path,
            "--config-file",
            TUTORIAL,
            "--resume",
            *QUICK,
            "train.train_epoch=0",
            "train.train_iter=24",
            f"train.output_dir={folder}",
        )
    one, two = (flow.load(tmp_path / name / "model_final" / "model") for name in ("one", "two"))
    for name, value in one.items():
        np.testing.assert_allclose(value.numpy(), two[name].numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_shell_scripts_say_how_they_are_called(tmp_path):
    for name, usage in (("train.sh", "FILE CONFIG NPROC"), ("infer.sh", "FILE NPROC")):
        assert usage in run(tmp_path, ROOT / "tools" / name, status=2).stderr
    (tmp_path / "program.py").write_text(
        "import os, sys; print(os.environ['ONEFLOW_LINEAR_EMBEDDING_SKIP_INIT'], sys.argv[1:])"
    )
    assert "1 ['a']" in run(tmp_path, ROOT / "tools" / "infer.sh", "program.py", "1", "a").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--config-file is needed"),
        (["--config-file", "nothing.py"], "config file 'nothing.py' has to exist"),
        (["--config-file", TUTORIAL, "train.ouput_dir=x"], "Did you mean train.output_dir?"),
        (["--config-file", TUTORIAL, "train.load_weight=nowhere", "--eval-only"], "flags come before them"),
        (
            ["--config-file", TUTORIAL, "--eval-only", "train.load_weight=nowhere", *QUICK],
            "there is no checkpoint 'nowhere'",
        ),
    ],
)
def test_what_is_wrong_is_one_message(tmp_path, arguments, message):
    done = train(tmp_path, *arguments, status=1)
    assert message in done.stderr and "Traceback" not in done.stderr and done.stderr.count("\n") == 1, done.stderr


SMALL = """
from libai_runs import config as _config
_cfg = _config("out", "train.train_iter=30", "train.checkpointer={period:4,max_to_keep:2}", "train.evaluation.eval_period=6")
model, optim, graph, dataloader, train = _cfg.model, _cfg.optim, _cfg.graph, _cfg.dataloader, _cfg.train
"""


@pytest.mark.slow
def test_a_run_killed_at_any_moment_and_resumed_is_the_run_that_was_never_stopped(tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.py").write_text(SMALL)
    train(tmp_path / "whole", "--config-file", "config.py")
    out, dice = tmp_path / "killed" / "out", random.Random(5)
    kills = int(os.environ.get("LIBAI_KILLS", "3"))
    for number in range(kills):
        command = [
            sys.executable,
            str(ROOT / "tools" / "train_net.py"),
            "--config-file",
            "config.py",
            *(["--resume"] if number else []),
        ]
        process = subprocess.Popen(
            command, cwd=tmp_path / "killed", env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        written = _size(out / "log.txt")
        # Somewhere between the first line of the trainer and its last checkpoint: the log of a whole run has some 20
        # kB.
        target = written + dice.randrange(2_000, 14_000)
        until(lambda: _size(out / "log.txt") > target or process.poll() is not None, 60)  # noqa: B023
        process.send_signal(dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        process.wait(30)
    command = [*WARM.command(), str(ROOT / "tools" / "train_net.py"), "--config-file", "config.py", "--resume"]
    done = subprocess.run(
        command, cwd=tmp_path / "killed", env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 or "model training has finished" in done.stderr, done.stderr
    for name in ("model_final", "model_best"):
        whole, killed = (flow.load(tmp_path / run / "out" / name / "model") for run in ("whole", "killed"))
        for key, value in whole.items():
            np.testing.assert_array_equal(killed[key].numpy(), value.numpy(), err_msg=f"{name} {key}")
    of = lambda folder: {line["iteration"]: line["Acc@1"] for line in metrics(folder) if "Acc@1" in line}  # noqa: E731
    assert of(out) == of(tmp_path / "whole" / "out")
    assert sorted(path.name for path in out.glob("model_0*")) == ["model_0000023", "model_0000027"]
    assert not list(out.glob(".*.tmp")), "what a killed process has left is cleared by the next"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
