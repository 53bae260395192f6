"""Every target of the Makefile is described, can be made in a fresh clone, and installs what its programs import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = re.findall(r"^\.PHONY: (.*)$", TEXT, re.MULTILINE)[0].split()
FRESH = "no_such_environment"  # as in a fresh clone, there is no environment yet


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """What ``make`` would do in a fresh clone."""
    command = ["make", "-n", f"VENV={FRESH}", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def extra_of(target: str) -> set[str]:
    """The extras that a target installs in a fresh clone."""
    return set(re.findall(r"pip install --quiet -e '\.\[(\w+)\]'", make(target, "OLD=HEAD").stdout))


def test_every_target_is_told_at_the_top() -> None:
    head = TEXT.split("\n\n")[0]
    told = re.findall(r"^# make (\w+) +\S", head, re.MULTILINE)
    assert sorted(told) == sorted(TARGETS), (
        "each target of .PHONY has one line '# make target   what it does' at the top of the Makefile"
    )


def test_every_rule_that_is_no_file_is_declared() -> None:
    rules = set(re.findall(r"^([a-z]+):(?! export)", TEXT, re.MULTILINE))
    assert rules == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_a_fresh_clone_knows_what_to_do(target: str) -> None:
    done = make(target, "OLD=HEAD")
    assert done.returncode == 0, done.stderr
    assert done.stdout and "warning" not in done.stderr
    made = f"-m venv {FRESH}" in done.stdout
    assert made == (target != "clean"), "all but clean make the environment first"


def test_what_programs_are_run_exists() -> None:
    named = {
        path
        for target in TARGETS
        for path in re.findall(r"(?:benchmarks|docs|examples)/[\w/]+\.(?:py|png)", make(target, "OLD=HEAD").stdout)
    }
    assert {"docs/make_reference.py", "benchmarks/against.py", "benchmarks/cnns.py", "examples/mnist/mnist.py"} <= named
    assert not [path for path in named if not (ROOT / path).exists()]


def test_every_benchmark_is_run_by_a_target() -> None:
    programs = {
        path.name
        for path in (ROOT / "benchmarks").glob("*.py")
        if 'if __name__ == "__main__":' in path.read_text(encoding="utf-8")
    }
    run = set(re.findall(r"benchmarks/(\w+\.py)", make("bench").stdout + make("against", "OLD=HEAD").stdout))
    assert run == programs


def test_sizes() -> None:
    assert make("bench", "SIZE=small").stdout.count(".py --small") == make("bench").stdout.count("benchmarks/") == 16
    assert "--small" not in make("bench").stdout
    refused = make("bench", "SIZE=tiny")
    assert refused.returncode and "SIZE is full or small, got tiny" in refused.stderr


def test_against_says_what_it_needs() -> None:
    refused = make("against")
    assert (
        refused.returncode
        and "make against needs the commit to measure against, such as make against OLD=HEAD~1" in refused.stderr
    )
    assert "benchmarks/against.py HEAD~1" in make("against", "OLD=HEAD~1").stdout


# ------------------------------------------------------------------ extras


def imported(path: Path) -> set[str]:
    """Packages that a program imports anywhere in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {name.split(".")[0] for name in names}


def installed_by(extras: set[str]) -> set[str]:
    """Distributions that the package requires with these extras, and with those that they name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: set[str] = set()
    waiting = [*project["dependencies"], *(f"oneflow-torch[{extra}]" for extra in extras)]
    for requirement in waiting:
        inner = re.fullmatch(r"oneflow-torch\[(.*)\]", requirement)
        if inner:
            waiting += [one for extra in inner[1].split(",") for one in project["optional-dependencies"][extra]]
        else:
            found.add(re.split(r"[<>=]", requirement)[0].lower())
    return found


def foreign(paths: list[Path]) -> set[str]:
    """Distributions that programs import: not Python's own, not ours."""
    local = {path.stem for path in paths} | {
        "configs",
        "dataset",
        "flowvision",
        "libai",
        "modeling",
        "models",
        "oneflow",
    }
    names = {name for path in paths for name in imported(path)} - local - set(sys.stdlib_module_names)
    known = packages_distributions()
    return {known.get(name, [name])[0].lower() for name in names}


PROGRAMS = {
    "bench": ["benchmarks/*.py", "examples/cnns/models/*.py"],
    "against": [
        "benchmarks/against.py",
        "benchmarks/jobs.py",
        "benchmarks/apart.py",
        "benchmarks/measure.py",
        "examples/cnns/models/*.py",
    ],
    "quickstart": ["examples/quick_start/*.py", "examples/mnist/*.py"],
    "libai": ["examples/libai_mnist/**/*.py", "tools/*.py"],
    "reference": ["docs/make_reference.py"],
}


@pytest.mark.parametrize("target", PROGRAMS)
def test_a_target_installs_what_its_programs_import(target: str) -> None:
    paths = [path for pattern in PROGRAMS[target] for path in ROOT.glob(pattern)]
    missing = foreign(paths) - installed_by(extra_of(target))
    assert not missing, (
        f"make {target} runs programs that import {missing}, and installs only the extras {extra_of(target)} of "
        f"pyproject.toml"
    )


def test_an_import_that_no_extra_has_is_found(tmp_path) -> None:
    (tmp_path / "program.py").write_text(
        "def late():\n    import onnxruntime\n\n\nimport torch.nn\nfrom PIL import Image\n"
    )
    assert foreign([tmp_path / "program.py"]) - installed_by({"examples"}) == {"onnxruntime"}
    assert not foreign([tmp_path / "program.py"]) - installed_by({"onnx", "vision"})
