"""The checks behind the doctor's verdict: requirements, torch version, conflicting distributions, memory and disk."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
from pathlib import Path

import torch

from oneflow.engine.core.installation import (
    EXTRAS,
    REQUIREMENTS,
    conflicting_distributions,
    describe_conflicts,
    is_tested_torch,
    package_folders,
    tested_torch,
    version_numbers,
)

_SHARED_MEMORY = Path("/dev/shm")
_GB = 1 << 30
_LEAST_MEMORY, _LEAST_DISK, _LEAST_SHARED = 1 * _GB, 1 * _GB, _GB // 4


def installed_version(requirement: str) -> tuple[str, str | None]:
    """The package of a requirement such as ``"pillow>=10"``, and its installed version or None."""
    name = re.split(r"[<>=]", requirement)[0]
    try:
        return name, importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return name, None


def is_enough(requirement: str) -> bool:
    """Whether the package is installed and not older than required."""
    _, version = installed_version(requirement)
    return version is not None and version_numbers(version) >= version_numbers(re.split(r"[<>=]+", requirement)[1])


def resource_facts() -> list[str]:
    """Free memory and disk space, one line each."""
    available, total = memory()
    return [
        f"memory: {_gb(available)} of {_gb(total)} free",
        f"disk here: {_gb(shutil.disk_usage('.').free)} free",
        f"{_SHARED_MEMORY}: {_gb(shared_memory())} free",
    ]


def memory() -> tuple[int | None, int | None]:
    """Available and total memory in bytes, None where the system does not report them."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None, None
    found = {name: int(kilobytes) << 10 for name, kilobytes in re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE)}
    return found.get("MemAvailable"), found.get("MemTotal")


def shared_memory() -> int | None:
    """Free bytes of /dev/shm, through which data loader workers send batches."""
    return shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else None


def advice() -> list[str]:
    """What to do about each problem, most serious first."""
    return [*_packages(), *_torch(), *_conflicts(), *_resources()]


def _packages() -> list[str]:
    missing = [requirement for requirement in REQUIREMENTS[1:] if not is_enough(requirement)]
    outdated = {
        requirement
        for requirements in EXTRAS.values()
        for requirement in requirements
        if installed_version(requirement)[1] is not None and not is_enough(requirement)
    }
    wanted = [*missing, *sorted(outdated - set(missing))]
    return [f"missing or too old: pip install {' '.join(map(repr, wanted))}"] if wanted else []


def _torch() -> list[str]:
    if is_tested_torch(torch.__version__):
        return []
    return [
        f"torch {torch.__version__} is outside the tested range, and compiled steps may fail: pip install "
        f"'{tested_torch()}'"
    ]


def _conflicts() -> list[str]:
    found = conflicting_distributions(package_folders())
    return [describe_conflicts(found)] if found else []


def _resources() -> list[str]:
    available, shared = memory()[0], shared_memory()
    disk = shutil.disk_usage(".").free
    texts = []
    if available is not None and available < _LEAST_MEMORY:
        texts.append(f"only {_gb(available)} of memory are free: end other programs, or take a smaller batch")
    if disk < _LEAST_DISK:
        texts.append(f"only {_gb(disk)} are free on the disk of {os.getcwd()}: checkpoints may not fit")
    if shared is not None and shared < _LEAST_SHARED:
        texts.append(
            f"only {_gb(shared)} are free in {_SHARED_MEMORY}: data loader workers may crash. In a container, pass "
            "--shm-size=2g"
        )
    return texts


def _gb(size: int | None) -> str:
    return "unknown" if size is None else f"{size / _GB:.1f} GB"
