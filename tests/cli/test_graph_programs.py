"""The programs of examples/tensors that train in a graph, as a user runs them."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from checkpoint_jobs import files
from warm_python import WARM
from warm_ranks import said, started

import oneflow
from oneflow.engine.data.formats import mnist_files

PROGRAMS = Path(__file__).parents[2] / "examples" / "tensors"
LINE = re.compile(r"step (\d+)  loss (\S+)")


def run(folder: Path, program: str, *arguments: str) -> str:
    """What it prints."""
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
    return done.stdout


def on_ranks(folder: Path, count: int, program: str, *arguments: str) -> str:
    """What it prints on so many ranks."""
    common = {"PYTHONPATH": str(Path(oneflow.__file__).parents[1]), "ONEFLOW_MNIST_DIR": str(mnist_files.SUBSET)}
    return "".join(said(started(count, str(PROGRAMS / program), *arguments, folder=folder, **common)))


def launched(folder: Path, count: int, program: str, *arguments: str) -> str:
    """The same by the launcher, as a user does it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = os.environ | {
        "PYTHONPATH": str(Path(oneflow.__file__).parents[1]), "ONEFLOW_STEP_TIMEOUT": "60", "ONEFLOW_MNIST_DIR": str(mnist_files.SUBSET)
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "oneflow.distributed.launch",
        "--nproc_per_node",
        str(count),
        "--master_port",
        port,
        str(PROGRAMS / program),
        *arguments,
    ]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
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


@pytest.mark.slow
def test_two_ranks_train_as_one_process_does(tmp_path):
    alone = run(tmp_path, "data_parallel.py")
    assert losses(alone)[-1] < 0.3 * losses(alone)[0]
    for start, arguments in ((launched, ()), (on_ranks, ("--zero", "3"))):
        together = start(tmp_path, 2, "data_parallel.py", *arguments)
        assert (
            losses(together) == pytest.approx(losses(alone), abs=2e-4)
            and together.splitlines()[-1] == alone.splitlines()[-1]
        )


@pytest.mark.slow
def test_a_plain_module_trains_on_four_ranks_by_auto_parallel(tmp_path):
    alone = run(tmp_path, "auto_parallel.py")
    together = on_ranks(tmp_path, 4, "auto_parallel.py", "--limit", "0.6")
    assert losses(together) == pytest.approx(losses(alone), abs=2e-4)
    assert (
        "AUTO PARALLEL" in together
        and "the limit is 614 KiB" in together
        and "sbp=(oneflow.sbp.split(dim=0),), size=(2048, 32)" in together
    )


PARALLEL = {
    "tensor parallel": (2, "tensor_parallel.py"),
    "pipeline": (2, "pipeline_parallel.py"),
    "ZeRO": (2, "zero.py", "--stage", "3"),
    "data x tensor": (4, "hybrid.py"),
    "tensor x pipeline": (4, "hybrid.py", "--stages", "2"),
    "eager, batches split": (2, "eager_global.py"),
    "eager, weights split": (2, "eager_global.py", "--weights", "split"),
    "copies of local tensors": (2, "ddp.py"),
}


@lru_cache(maxsize=None)
def by_one_process(program: str) -> str:
    with TemporaryDirectory() as folder:
        return run(Path(folder), program)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PARALLEL)
def test_every_kind_of_parallelism_has_the_losses_of_one_process(kind, tmp_path):
    count, program, *arguments = PARALLEL[kind]
    alone = losses(by_one_process(program))
    together = on_ranks(tmp_path, count, program, *arguments)
    assert len(alone) == 3 and alone[-1] < 0.75 * alone[0]
    assert losses(together) == pytest.approx(alone, abs=3e-4)
    if kind in ("tensor parallel", "ZeRO"):
        held, whole = map(int, re.findall(r"(\d+) of (\d+)", together)[0])
        assert held < 0.51 * whole


def test_an_example_is_short_enough_to_read():
    for _, program, *_ in PARALLEL.values():
        assert len((PROGRAMS / program).read_text(encoding="utf-8").splitlines()) <= 85
