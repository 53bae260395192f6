"""``python -m oneflow``."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch

import oneflow
from oneflow.__main__ import main


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    monkeypatch.delenv("ONEFLOW_MNIST_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_as_a_command():
    run = subprocess.run(
        [sys.executable, "-m", "oneflow", "--doctor"], capture_output=True, text=True, timeout=120, env=_environment()
    )
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    assert f"version: {oneflow.__version__}" in run.stdout


def _environment() -> dict[str, str]:
    paths = [path for path in sys.path if path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_names_every_part(no_data, capsys):
    assert main(["--doctor"]) == 0
    out = capsys.readouterr().out
    for line in [
        f"torch: {re.escape(torch.__version__)}",
        "cuda: .+",
        "mkl: (yes|no)",
        "onednn: (yes|no)",
        r"cpu: \d+ cores, \d+ for this process",
        f"inside an op: {torch.get_num_threads()}",
        "gloo: (yes|no)",
        "nccl: (yes|no)",
        r"addresses: .*127\.0\.0\.1.*",
        "ONEFLOW_SECRET: (set|not set)",
        r"a step may take: \d+ s",
        "launcher: none",
        "in a program of jobs: this process drives, and starts the workers it needs",
        "in a program of global tensors, graphs, comm or env: a world of one",
        r"tensorboard: \d+\..+",
        "backend: (native|python)",
        "C extension: (built|not built.*)",
        "C extension of fused batch norm: (built|not built.*)",
        "C extension of Winograd convolutions: (built|not built.*)",
        "C extension of convolutions in prediction: (built|not built.*)",
        "C extension of updates: (built|not built.*)",
        "ONEFLOW_FUSION: not set, native",
        "mnist, ONEFLOW_MNIST_DIR: not set",
        "mnist, cache: not in .+",
        "mnist, shipped subset: 5000 training and 1000 test images in .+",
    ]:
        assert re.search(f"^  {line}$", out, re.MULTILINE), f"{line!r} is not in\n{out}"


def test_tells_what_a_wrong_fusion_setting_is(no_data, monkeypatch, capsys):
    monkeypatch.setenv("ONEFLOW_FUSION", "on")
    assert main(["--doctor"]) == 0
    assert "  ONEFLOW_FUSION: native\n" in capsys.readouterr().out
    monkeypatch.setenv("ONEFLOW_FUSION", "soon")
    assert main(["--doctor"]) == 0
    assert "  ONEFLOW_FUSION: broken: ONEFLOW_FUSION is one of 'off', 'native', got 'soon'" in capsys.readouterr().out


def test_tells_which_picture_backend_is_used(no_data, monkeypatch, capsys):
    monkeypatch.setenv("ONEFLOW_IMAGE_BACKEND", "python")
    assert main(["--doctor"]) == 0
    assert "  backend: python\n" in capsys.readouterr().out
    monkeypatch.setenv("ONEFLOW_IMAGE_BACKEND", "gpu")
    assert main(["--doctor"]) == 0
    assert "backend: broken: ONEFLOW_IMAGE_BACKEND is 'native' or 'python', got 'gpu'" in capsys.readouterr().out


def test_tells_what_the_environment_says_of_several_machines(no_data, monkeypatch, capsys):
    monkeypatch.setenv("ONEFLOW_SECRET", "a long random text")
    monkeypatch.setenv("ONEFLOW_MACHINE_ID", "1")
    monkeypatch.setenv("ONEFLOW_STEP_TIMEOUT", "soon")
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}.items():
        monkeypatch.setenv(name, value)
    assert main(["--doctor"]) == 0
    out = capsys.readouterr().out
    assert "  ONEFLOW_SECRET: set\n  ONEFLOW_MACHINE_ID: 1\n" in out and "a long random text" not in out
    assert "a step may take: broken: environment variable ONEFLOW_STEP_TIMEOUT is 'soon'" in out
    assert (
        "  launcher: rank 3 of 4, 4 on each machine\n  in a program of jobs: rank 0 drives; this process serves it\n"
        in out
    )
    assert (
        "  in a program of global tensors, graphs, comm or env: all ranks are peers; this process is rank 3 of 4\n"
        in out
    )


def test_says_that_a_data_file_is_broken(no_data, monkeypatch, tmp_path, capsys):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"no idx file")
    monkeypatch.setenv("ONEFLOW_MNIST_DIR", str(tmp_path))
    assert main(["--doctor"]) == 0
    assert "ONEFLOW_MNIST_DIR: broken: " in capsys.readouterr().out


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == oneflow.__version__


def test_an_unknown_argument_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--docter"])
    assert end.value.code == 2
    assert "unrecognized arguments: --docter" in capsys.readouterr().err


def test_without_arguments_it_prints_its_help(capsys):
    assert main([]) == 0
    assert "--doctor" in capsys.readouterr().out
