"""What the wheels and the sdist contain."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("oneflow", "flowvision", "libai", "fastnn")
BUILD = "import sys; from setuptools.build_meta import {hook} as build; print(build(sys.argv[1]))"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: a build writes beside them."""
    folder = tmp_path_factory.mktemp("packaging") / "clone"
    ignored = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", "*.so", ".*_cache")
    shutil.copytree(ROOT, folder, ignore=ignored, symlinks=True)
    return folder


def built(clone: Path, hook: str, out: Path, **variables: str) -> Path:
    run = subprocess.run(
        [sys.executable, "-c", BUILD.format(hook=hook), str(out)],
        cwd=clone,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return out / run.stdout.split()[-1]


@pytest.fixture(scope="module")
def pure_wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(clone, "build_wheel", tmp_path_factory.mktemp("wheel"), ONEFLOW_PURE="1")


@pytest.mark.slow
def test_the_pure_wheel_has_all_python_and_data_and_no_c(pure_wheel: Path) -> None:
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(pure_wheel).namelist())
    expected = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    data = {
        path.relative_to(ROOT / "src").as_posix()
        for package in PACKAGES
        for pattern in ("*.html", "*.css", "*.js", "*.gz", "SOURCE.txt", "py.typed")
        for path in (ROOT / "src" / package).rglob(pattern)
    }
    assert not (expected | data) - names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert not [name for name in names if name.endswith((".c", ".h", ".so")) or name.startswith("tests/")]


@pytest.mark.slow
def test_the_wheel_declares_commands_extras_and_licenses(pure_wheel: Path) -> None:
    wheel = zipfile.ZipFile(pure_wheel)
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    entries = wheel.read(f"{info}/entry_points.txt").decode()
    metadata = wheel.read(f"{info}/METADATA").decode()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, target in {**project["scripts"], **project["entry-points"]["oneflow.commands"]}.items():
        assert f"{name} = {target}" in entries
    assert all(f"Provides-Extra: {extra}\n" in metadata for extra in project["optional-dependencies"])
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE"} <= set(wheel.namelist())


@pytest.mark.slow
def test_the_sdist_has_sources_tests_and_documents(clone: Path, tmp_path: Path) -> None:
    with tarfile.open(built(clone, "build_sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = [
        path.relative_to(ROOT).as_posix()
        for pattern in (
            "src/**/*.[ch]",
            "src/**/*.py",
            "tests/**/*.py",
            "docs/*",
            "*.md",
            "Makefile",
            "LICENSE",
            "NOTICE",
        )
        for path in ROOT.glob(pattern)
    ]
    assert len(tracked) > 1000
    assert not set(tracked) - names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".so")]
