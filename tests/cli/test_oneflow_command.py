"""``oneflow COMMAND`` and ``python -m oneflow COMMAND``."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import oneflow
from flowvision.models import listing
from oneflow import cli
from oneflow.cli import main

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution with the entry points of pyproject.toml, and one more command of another package."""
    lines = [f"{name} = {target}" for name, target in PROJECT["entry-points"][cli.GROUP].items()]
    for name, entries in {"oneflow_torch": lines, "somebody": ["greet = somebody_greets:main"]}.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("\n".join([f"[{cli.GROUP}]", *entries, ""]))
    (tmp_path / "somebody_greets.py").write_text("def main(argv):\n    print('hello', *argv)\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def not_installed(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])


def test_the_help_lists_every_command_and_a_next_step(installed, capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    for name in ("doctor", "plan", "launch", "data", "board", "models"):
        assert f"\n  {name} " in out
    assert "  greet   added by somebody\n" in out
    assert "plan-config" not in out
    assert out.rstrip().endswith("Next step: oneflow doctor")


def test_the_doctor_has_two_spellings(capsys):
    assert main(["doctor"]) == main(["--doctor"]) == 0
    assert capsys.readouterr().out.count(f"version: {oneflow.__version__}\n") == 2


def test_as_a_module_and_with_an_unknown_command():
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, "-m", "oneflow", "lanch", "x.py"], capture_output=True, text=True, timeout=120, env=environment
    )
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr.startswith("oneflow: there is no command 'lanch'; there are doctor, plan, launch, data, board")
    assert "Did you mean 'launch'? oneflow --help describes them" in run.stderr


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["plan", "--help"], "usage: python -m oneflow plan script.py"),
        (["launch", "--help"], "usage: python -m oneflow.distributed.launch"),
        (["data", "--help"], "usage: python -m oneflow.data"),
        (["doctor", "--help"], "usage: oneflow doctor"),
        (["board", "--help"], "usage: python -m libai.board"),
        (["models", "--help"], "usage: oneflow models"),
        (["plan", "--config-file", "c.py", "--help"], "usage: python -m libai.plan"),
        (["plan", "--config-file=c.py", "--help"], "usage: python -m libai.plan"),
        (["plan", "--help", "--", "--config-file", "c.py"], "usage: python -m oneflow plan script.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_commands_lead_to_their_programs(installed, words, usage, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(usage)


def test_another_distribution_adds_a_command(installed, capsys):
    assert main(["greet", "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"


def test_a_command_of_a_package_that_is_not_installed(not_installed, capsys):
    assert main(["board"]) == 2
    err = capsys.readouterr().err
    assert "the command 'board' belongs to a package that is not installed here" in err
    assert "Run pip install again, or python -m libai.board" in err


def test_an_error_of_ours_is_one_line(installed, tmp_path, capsys):
    assert main(["plan", "--config-file", str(tmp_path / "missing.py")]) == 1
    err = capsys.readouterr().err
    assert "missing.py" in err and len(err.splitlines()) == 1


def test_a_package_that_a_command_needs_is_missing(installed, tmp_path, capsys):
    (tmp_path / "somebody_greets.py").write_text(
        "from oneflow.engine.core.optional import require_packages\n"
        "require_packages('greeting', 'vision', 'no_such_package')\n"
    )
    sys.modules.pop("somebody_greets", None)
    assert main(["greet"]) == 1
    assert capsys.readouterr().err == (
        "error: greeting needs the package 'no_such_package', which is not installed: "
        "pip install 'oneflow-torch[vision]'\n"
    )


@pytest.mark.parametrize("name", PROJECT["scripts"])
def test_console_scripts_are_functions_without_arguments(name):
    assert callable(EntryPoint(name, PROJECT["scripts"][name], "console_scripts").load())


# ------------------------------------------------------------------ models


def test_models_by_pattern(capsys):
    assert listing.main(["resnet?8", "vgg16"]) == 0
    out, err = capsys.readouterr()
    assert out.split() == ["resnet18", "vgg16"]
    assert err.startswith("2 models. Next step: from flowvision.models import ModelCreator")


def test_models_with_parameters(capsys):
    # The published numbers.
    assert listing.main(["resnet18", "resnet50", "--parameters"]) == 0
    assert capsys.readouterr().out.split() == ["resnet18", "11,689,512", "resnet50", "25,557,032"]
    assert listing.main(["--slim", "mobilenet_v2", "--parameters"]) == 0
    assert capsys.readouterr().out.split() == ["mobilenet_v2", "3,504,872"]


def test_all_models(capsys):
    assert listing.main([]) == 0
    assert len(capsys.readouterr().out.split()) > 160
    assert listing.main(["--slim"]) == 0
    assert len(capsys.readouterr().out.split()) == 32


def test_no_model_of_that_name(capsys):
    assert listing.main(["*rasnet50*"]) == 1
    err = capsys.readouterr().err
    assert "no model matches *rasnet50*" in err and "Did you mean 'resnet50'?" in err
