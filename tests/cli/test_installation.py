"""What the package expects of its environment: requirements, torch, and no other distribution of the same names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from oneflow.cli import diagnosis
from oneflow.doctor import report
from oneflow.engine.core import installation

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def resolved(extra: str) -> set[str]:
    """The requirements of an extra, with those of the extras that it names."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        inner = re.fullmatch(r"oneflow-torch\[(.*)\]", requirement)
        found |= set().union(*map(resolved, inner[1].split(","))) if inner else {requirement}
    return found


def test_the_doctor_knows_the_requirements_of_pyproject() -> None:
    assert list(installation.REQUIREMENTS) == PROJECT["dependencies"]
    assert {name: set(found) for name, found in installation.EXTRAS.items()} == {
        name: resolved(name) for name in EXTRAS if name not in ("all", "dev")
    }


def test_older_extras_are_there_and_all_has_everything() -> None:
    assert {"chinese", "examples", "safetensors", "onnx", "dev"} <= set(EXTRAS)
    assert resolved("all") == set().union(*(resolved(name) for name in EXTRAS if name != "dev"))
    assert resolved("all") - resolved("dev") == resolved("ray")


def test_a_program_of_jobs_needs_little() -> None:
    names = {re.split(r"[<>=]", requirement)[0] for requirement in PROJECT["dependencies"]}
    assert not names & {"tokenizers", "sentencepiece", "tensorboard", "hydra-core", "omegaconf", "pyyaml", "pillow"}


# ------------------------------------------------------------------ torch


def test_torch_versions(monkeypatch) -> None:
    monkeypatch.setattr(installation, "TESTED_TORCH", ((2, 13), (2, 15)))
    assert [installation.is_tested_torch(v) for v in ("2.12.1", "2.13.0+cpu", "2.14.3", "2.15.0", "3.0.0")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert installation.tested_torch() == "torch>=2.13,<2.15"


def test_the_pinned_torch_is_tested() -> None:
    (pinned,) = [found for found in PROJECT["dependencies"] if found.startswith("torch")]
    assert installation.is_tested_torch(re.split(r"[<>=]+", pinned)[1])


def test_another_torch_is_something_to_do(monkeypatch) -> None:
    monkeypatch.setattr(installation, "TESTED_TORCH", ((9, 1), (9, 2)))
    last = report().splitlines()[-1]
    assert "is outside the tested range" in last and "pip install 'torch>=9.1,<9.2'" in last


# ------------------------------------------------------------------ other distributions


@pytest.fixture
def other(tmp_path: Path) -> Path:
    folder = tmp_path / "site-packages"
    for name in ("flowvision-0.2.2.dist-info", "oneflow-0.9.1+cu112.dist-info"):
        (folder / name).mkdir(parents=True)
    for harmless in ("oneflow_torch-0.2.0.dist-info", "oneflow-torch-0.2.0.dist-info", "libai_extra-1.dist-info"):
        (folder / harmless).mkdir()
    return folder


def test_other_distributions_of_our_names_are_found(other: Path) -> None:
    assert installation.conflicting_distributions([str(other), str(other / "no folder")]) == {
        "flowvision": "0.2.2",
        "oneflow": "0.9.1+cu112",
    }


def test_importing_warns_of_them(other: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(other)])}
    run = subprocess.run(
        [sys.executable, "-c", "import oneflow"], capture_output=True, text=True, timeout=120, env=environment
    )
    assert run.returncode == 0, run.stderr
    assert "flowvision 0.2.2" in run.stderr and "install packages of the same names" in run.stderr
    assert "pip uninstall" in run.stderr


def test_the_doctor_says_what_to_do_about_them(other: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(other)])
    text = report()
    assert "verdict: 1 to do\n  1. " in text and "flowvision 0.2.2" in text.splitlines()[-1]


@pytest.mark.quiet
def test_looking_for_them_takes_two_milliseconds_at_most() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        installation.warn_of_conflicts()
        return time.perf_counter() - start

    assert min(seconds() for _ in range(20)) < 0.002


# ------------------------------------------------------------------ resources


def test_little_memory_disk_and_shared_memory_are_something_to_do(monkeypatch) -> None:
    monkeypatch.setattr(diagnosis, "_LEAST_MEMORY", 1 << 60)
    monkeypatch.setattr(diagnosis, "_LEAST_DISK", 1 << 60)
    monkeypatch.setattr(diagnosis, "_LEAST_SHARED", 1 << 60)
    texts = diagnosis.advice()
    assert [text.split(" GB ")[0].split()[0] for text in texts] == ["only"] * 3
    assert "of memory are free" in texts[0] and "on the disk of" in texts[1] and "--shm-size=2g" in texts[2]


def test_a_missing_package_is_something_to_do(monkeypatch) -> None:
    monkeypatch.setattr(diagnosis, "REQUIREMENTS", ("torch==2.13.0", "no-such-package>=1", "numpy>=999"))
    assert diagnosis.advice() == ["missing or too old: pip install 'no-such-package>=1' 'numpy>=999'"]
