"""What the installed package expects of its environment: the tested torch versions, its requirements, and no other
distribution with the same package names. Imports nothing heavy: ``import oneflow`` runs the last check."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable

DISTRIBUTION = "oneflow-torch"
TESTED_TORCH = ((2, 13), (2, 14))  # from the first release up to, and without, the second

# The requirements of pyproject.toml, which the doctor cannot read once the package is installed.
REQUIREMENTS = ("torch==2.13.0", "numpy>=1.26", "google-crc32c>=1.5", "fsspec>=2023.6", "tqdm>=4.60")
_VISION = ("pillow>=10", "simplejpeg>=1.7", "safetensors>=0.4")
_LIBAI = (*_VISION, "omegaconf>=2.3", "hydra-core>=1.3", "pyyaml>=6", "tensorboard>=2.15")
_TEXT = (*_LIBAI, "tokenizers>=0.21", "sentencepiece>=0.2")
EXTRAS: dict[str, tuple[str, ...]] = {
    "vision": _VISION,
    "libai": _LIBAI,
    "text": _TEXT,
    "chinese": (*_TEXT, "jieba>=0.42"),
    "onnx": ("onnx>=1.16", "onnxruntime>=1.18"),
    "safetensors": ("safetensors>=0.4",),
    "tensorboard": ("tensorboard>=2.15",),
    "ray": ("ray>=2.40",),
    "examples": (*_LIBAI, "matplotlib>=3.8"),
}

_SAME_NAMES = re.compile(r"(oneflow|flowvision|libai|fastnn|oneflow_api)-(\d[^-]*)\.(?:dist|egg)-info$")


def version_numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 13, 0) for "2.13.0+cpu"."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def is_tested_torch(version: str) -> bool:
    """Whether the tests run with this torch release."""
    first, end = TESTED_TORCH
    return first <= version_numbers(version)[:2] < end


def tested_torch() -> str:
    """The tested range as a requirement, such as ``torch>=2.13,<2.14``."""
    first, end = (".".join(map(str, numbers)) for numbers in TESTED_TORCH)
    return f"torch>={first},<{end}"


def conflicting_distributions(folders: Iterable[str]) -> dict[str, str]:
    """Other installed distributions that have packages of the same names, with their versions.

    Reads only the names in ``folders``, which takes a fraction of what ``importlib.metadata`` would.
    """
    matches = (_SAME_NAMES.match(name) for folder in folders for name in _names_in(folder))
    return {match[1]: match[2] for match in matches if match}


def package_folders() -> set[str]:
    """The folders that packages are imported from: the one of this package, and all that pip installs into."""
    own = os.path.normpath(os.path.join(os.path.abspath(__file__), *[os.pardir] * 4))
    return {own, *(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))}


def describe_conflicts(found: dict[str, str]) -> str:
    """Which distributions are in the way, and the commands that remove them."""
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    return (
        f"{listed} and {DISTRIBUTION} install packages of the same names, so either may be imported in part. Keep one: "
        f"pip uninstall {' '.join(found)} && pip install --force-reinstall --no-deps {DISTRIBUTION}"
    )


def warn_of_conflicts() -> None:
    """Warns when another distribution owns one of our package names."""
    if found := conflicting_distributions(package_folders()):
        warnings.warn(describe_conflicts(found), stacklevel=2)


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
