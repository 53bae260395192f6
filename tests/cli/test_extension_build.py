"""The C extensions are built where they can be, and their absence is no error."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools")
ROOT = Path(__file__).parents[2]


def _quick_compiler(folder: Path) -> str:
    """The C compiler without optimization: what is built here is never run."""
    script = folder / "quick-cc"
    script.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    script.chmod(0o755)
    return str(script)


def _build(folder: Path, **variables: str) -> list[str]:
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-lib",
        str(folder / "lib"),
        "--build-temp",
        str(folder / "temp"),
    ]
    run = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stderr
    return sorted(path.name.split(".")[0] for path in folder.rglob("*.so"))


def test_without_a_compiler_nothing_is_built_and_nothing_fails(tmp_path: Path) -> None:
    assert _build(tmp_path, CC=str(tmp_path / "no-compiler")) == []


def test_without_the_headers_pictures_have_none_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "jpeglib.h").write_text('#error "no libjpeg-turbo"\n')
    assert "_jpeg" not in _build(tmp_path, CC=_quick_compiler(tmp_path), CFLAGS=f"-I{tmp_path}")


@pytest.mark.skipif(
    not (shutil.which("cc") and Path("/usr/include/jpeglib.h").exists()), reason="no compiler or no libjpeg headers"
)
def test_with_both_they_are_built(tmp_path: Path) -> None:
    for_x86 = {"_conv"} if platform.machine() == "x86_64" else set()
    assert set(_build(tmp_path, CC=_quick_compiler(tmp_path))) == {"_fused", "_jpeg", "_update", "_winograd"} | for_x86
