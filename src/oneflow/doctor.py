"""``oneflow doctor``: what this installation has to work with, as plain text, and what to do about problems."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed

from oneflow.cli.diagnosis import advice, installed_version, is_enough, resource_facts
from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.fusion_setting import DEFAULT, VARIABLE, fusion_setting
from oneflow.engine.core.installation import EXTRAS, REQUIREMENTS, is_tested_torch, tested_torch
from oneflow.engine.data import image
from oneflow.engine.data.formats import mnist_files
from oneflow.engine.ops import native
from oneflow.engine.runtime.launch.addresses import local_addresses
from oneflow.engine.runtime.launch.launchers import launched
from oneflow.engine.runtime.launch.limits import connect_seconds, step_seconds
from oneflow.version import __version__

__all__ = ["main", "report"]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the report."""
    parser = argparse.ArgumentParser(
        prog="oneflow doctor",
        description="Prints versions, devices, memory, packages, C extensions and data files, and a verdict.",
    )
    parser.parse_args(argv)
    print(report())
    return 0


def report() -> str:
    """One line per fact, ``name: value``, under a heading for each part; the last lines are the verdict."""
    parts: list[tuple[str, Callable[[], list[str]]]] = [
        ("oneflow", _versions),
        ("torch build", _build),
        ("devices", _devices),
        ("threads", _threads),
        ("memory and disk", resource_facts),
        ("backends", _backends),
        ("several machines", _machines),
        ("packages", _packages),
        ("extras", _extras),
        ("pictures", _pictures),
        ("steps", _steps),
        ("data", _data),
    ]
    facts = [(title, found()) for title, found in parts]
    lines = [line for title, found in facts for line in [title, *(f"  {fact}" for fact in found)]]
    return "\n".join([*lines, *_verdict([fact for _, found in facts for fact in found])])


def _verdict(facts: Sequence[str]) -> list[str]:
    """All good, or what to do."""
    problems = [*advice(), *(fact for fact in facts if ": broken: " in fact)]
    if problems:
        return [f"verdict: {len(problems)} to do", *(f"  {number}. {text}" for number, text in enumerate(problems, 1))]
    built = [library is not None for library in (image.native.library, native.library, native.update)]
    slower = "" if all(built) else "; some C extensions are not built, which costs speed only"
    return [f"verdict: all good{slower}. Next step: the first program in README.md, or oneflow --help"]


def _versions() -> list[str]:
    return [
        f"version: {__version__}",
        f"folder: {Path(__file__).parent}",
        f"python: {platform.python_version()} on {platform.platform()}",
    ]


def _build() -> list[str]:
    return [
        f"torch: {torch.__version__}",
        f"tested: {_yes(is_tested_torch(torch.__version__))}, {tested_torch()}",
        f"cuda: {torch.version.cuda or 'not built in'}",
        f"mkl: {_yes(torch.backends.mkl.is_available())}",
        f"onednn: {_yes(torch.backends.mkldnn.is_available())}",
        f"openmp: {_yes(torch.backends.openmp.is_available())}",
        f"cpu instructions: {torch.backends.cpu.get_cpu_capability()}",
    ]


def _devices() -> list[str]:
    gpus = [f"gpu {i}: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        f"cpu: {os.cpu_count()} cores, {usable} for this process",
        *(gpus or ["gpu: none; gpu placements run on the cpu"]),
    ]


def _threads() -> list[str]:
    return [f"inside an op: {torch.get_num_threads()}", f"between ops: {torch.get_num_interop_threads()}"]


def _backends() -> list[str]:
    if not torch.distributed.is_available():
        return ["torch.distributed: not built in"]
    return [
        f"gloo: {_yes(torch.distributed.is_gloo_available())}",
        f"nccl: {_yes(torch.distributed.is_nccl_available())}",
    ]


def _machines() -> list[str]:
    return [
        f"addresses: {', '.join(local_addresses())}",
        f"ONEFLOW_SECRET: {'set' if os.environ.get('ONEFLOW_SECRET') else 'not set'}",
        f"ONEFLOW_MACHINE_ID: {os.environ.get('ONEFLOW_MACHINE_ID', 'not set')}",
        f"a step may take: {_told(lambda: f'{step_seconds():g} s')}",
        f"processes wait at the start: {_told(lambda: f'{connect_seconds():g} s')}",
        f"launcher: {_told(_launcher)}",
        f"in a program of jobs: {_told(_as_job)}",
        f"in a program of global tensors, graphs, comm or env: {_told(_as_peer)}",
    ]


def _launcher() -> str:
    found = launched()
    return "none" if found is None else f"rank {found.rank} of {found.size}, {found.local_size} on each machine"


def _as_job() -> str:
    """What the first job would make of this process."""
    found = launched()
    if found is None:
        return "this process drives, and starts the workers it needs"
    return f"rank 0 drives; this process {'drives' if found.is_driver else 'serves it'}"


def _as_peer() -> str:
    """What the first use of anything else makes of it."""
    found = launched()
    return (
        "a world of one" if found is None else f"all ranks are peers; this process is rank {found.rank} of {found.size}"
    )


def _told(fact: Callable[[], str]) -> str:
    """A fact, or why it cannot be told."""
    try:
        return fact()
    except ArgumentError as error:
        return f"broken: {error.reason}"


def _packages() -> list[str]:
    """Every requirement with the extras that it belongs to."""
    extras: dict[str, list[str]] = {requirement: [] for requirement in REQUIREMENTS}
    for extra, requirements in EXTRAS.items():
        for requirement in requirements:
            extras.setdefault(requirement, []).append(extra)
    return [_package(requirement, names) for requirement, names in extras.items()]


def _package(requirement: str, extras: list[str]) -> str:
    name, version = installed_version(requirement)
    state = version or "not installed"
    if version is not None and not is_enough(requirement):
        state = f"{version}, expected {requirement}"
    return f"{name}: {state} ({', '.join(extras)})" if extras else f"{name}: {state}"


def _extras() -> list[str]:
    return [f"{extra}: {_extra(extra)}" for extra in EXTRAS]


def _extra(extra: str) -> str:
    missing = [installed_version(requirement)[0] for requirement in EXTRAS[extra] if not is_enough(requirement)]
    return f"without {', '.join(missing)}; pip install 'oneflow-torch[{extra}]'" if missing else "installed"


def _pictures() -> list[str]:
    built = (
        "built"
        if image.native.library is not None
        else "not built; it needs a C compiler and libjpeg-turbo's headers at install"
    )
    return [f"backend: {_told(image.backend)}", f"C extension: {built}"]


def _steps() -> list[str]:
    built, missing = "built", "not built; it needs a C compiler with OpenMP at install, and torch's own ops do its work"
    return [
        f"C extension of fused batch norm: {built if native.library is not None else missing}",
        f"C extension of Winograd convolutions: "
        f"{built if native.winograd is not None else f'{missing}; or the processor has no AVX2'}",
        f"C extension of convolutions in prediction: "
        f"{built if native.conv is not None else f'{missing}; or the processor has no AVX2'}",
        f"C extension of updates: {built if native.update is not None else missing}",
        f"{VARIABLE}: {_told(fusion_setting) if VARIABLE in os.environ else f'not set, {DEFAULT}'}",
    ]


def _data() -> list[str]:
    named = os.environ.get("ONEFLOW_MNIST_DIR")
    return [
        f"mnist, ONEFLOW_MNIST_DIR: {_mnist(Path(named)) if named else 'not set'}",
        f"mnist, cache: {_mnist(mnist_files.cache_folder())}",
        f"mnist, shipped subset: {_mnist(mnist_files.SUBSET)}",
    ]


def _mnist(folder: Path) -> str:
    files = [folder / name for file in mnist_files.SHA256 for name in (file, file.removesuffix(".gz"))]
    if not any(file.exists() for file in files):
        return f"not in {folder}"
    try:
        found = mnist_files.read_mnist(folder)
    except DataError as error:
        return f"broken: {error}"
    return f"{len(found.train_images)} training and {len(found.test_images)} test images in {folder}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
