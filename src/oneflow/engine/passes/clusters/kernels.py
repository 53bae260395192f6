"""Kernels of clusters as they are kept and run: a short Python function that makes buffers and calls compiled loops.
Nothing of torch's compiler is loaded for it."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneflow.engine.core.fusion_setting import compiler
from oneflow.engine.passes.clusters.cluster import Cluster, Spec
from oneflow.engine.passes.clusters.kernel_store import KernelStore

_FORMAT = 1
Kernel = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Request:
    """A kernel to be compiled: for inputs that lie so, and for so many threads."""

    cluster: Cluster
    specs: tuple[Spec, ...]
    threads: int

    @cached_property
    def digest(self) -> str:
        """Another one wherever another kernel would be right or faster: other ops, shapes, strides, dtypes, threads,
        another torch, processor or compiler."""
        return self.cluster.digest(
            self.specs, _FORMAT, self.threads, str(torch.__version__), _processor(), str(compiler())
        )


@cache
def _processor() -> str:
    """What tells processors apart that run different instructions."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8", errors="replace").splitlines() if described.exists() else []
    told = [next((line for line in lines if line.startswith(name)), "") for name in ("model name", "flags", "Features")]
    return f"{torch.backends.cpu.get_cpu_capability()} {hashlib.sha256(''.join(told).encode()).hexdigest()}"


# ------------------------------------------------------------------ as bytes


def packed(library: bytes, **told: Any) -> bytes:
    """A kernel as it is kept; that none is possible is an empty one."""
    return json.dumps(told).encode() + b"\0" + library


def loaded(payload: bytes, store: KernelStore) -> Kernel | None:
    """A kernel that can be called; None where there can be none. ``payload`` is run, and must have come from the
    store."""
    if not payload:
        return None
    head, _, library = payload.partition(b"\0")
    told = json.loads(head)
    with store.as_file(library) as path:
        if told["kind"] == "triton":  # never run where the tests run: no GPU there
            return _artifact(path)
        calls = ctypes.CDLL(str(path))
    names: dict[str, Any] = {"torch": torch, "empty": torch.empty_strided, "view": torch.as_strided}
    for name, count in told["kernels"].items():
        names[name] = calls[name]
        names[name].argtypes, names[name].restype = [ctypes.c_void_p] * count, None
    exec(compile(told["source"], "<kernel>", "exec"), names)  # noqa: S102 - made by inductor_kernels.py, and proven to be
    return names["call"]


def _artifact(path: Path) -> Kernel:
    from torch._inductor import CompiledArtifact  # with it comes torch's compiler, which Triton's kernels run by

    return CompiledArtifact.load(path=str(path), format="binary")


def matching(specs: Sequence[Spec]) -> Callable[[tuple[Tensor, ...]], bool]:
    """Whether tensors lie as a kernel was compiled for: it does not look itself."""
    wanted = [(torch.Size(spec.shape), spec.stride, getattr(torch, spec.dtype)) for spec in specs]

    def fits(tensors: tuple[Tensor, ...]) -> bool:
        for tensor, (shape, stride, dtype) in zip(tensors, wanted):
            if tensor.shape != shape or tensor.stride() != stride or tensor.dtype is not dtype:
                return False
        return True

    return fits
