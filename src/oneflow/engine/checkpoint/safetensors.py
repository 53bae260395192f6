"""safetensors files: one file of named tensors that any framework reads without running code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from oneflow.engine.checkpoint.writing import beside, sync_folder
from oneflow.engine.core.errors import CheckpointError
from oneflow.engine.core.optional import optional_package
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.job.function import default_session

_PRODUCER = "oneflow-torch"


@entry
def to_safetensors(path: str | os.PathLike[str]) -> None:
    """Saves the model variables of all jobs, without optimizer state and counters, as one safetensors file.

    The file must not exist; it is written beside its place and renamed. ``from_torch`` loads it back bit-equal.
    """
    package = _package("safetensors", "flow.checkpoint.to_safetensors")
    session = default_session()
    session.require_jobs("to_safetensors")
    target = Path(path)
    if target.exists() or target.is_symlink():
        raise CheckpointError(f"cannot save to {str(target)!r}: it exists; remove it or choose another path")
    tensors = {name: torch.from_numpy(session.store.numpy(name)) for name in session.model_variables()}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(_package("safetensors.torch", "flow.checkpoint.to_safetensors").save_file, target, tensors)
    except (OSError, package.SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"cannot save to {str(target)!r}: {reason}; choose another path") from None


def _package(name: str, needed_for: str) -> Any:
    return optional_package(name, "safetensors", needed_for)


def _write(save_file: Callable[..., None], target: Path, tensors: dict[str, torch.Tensor]) -> None:
    with beside(target) as folder:
        made = folder / target.name
        save_file(tensors, str(made), metadata={"format": "pt", "producer": _PRODUCER})
        sync_folder(made)
        made.chmod(0o644)
        os.rename(made, target)
    sync_folder(target.parent)


def is_safetensors(path: Path) -> bool:
    """Whether a file is called so, or begins as such files do: with the length of a header, and the header's brace."""
    if path.suffix == ".safetensors":
        return True
    with open(path, "rb") as file:
        begin = file.read(9)
    return begin[8:] == b"{" and int.from_bytes(begin[:8], "little") + 8 <= path.stat().st_size


def read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], bool]:
    """The tensors of a file by name, and whether we wrote it."""
    package = _package("safetensors", "reading a safetensors file")
    try:
        with package.safe_open(str(path), framework="pt", device="cpu") as file:
            is_ours = (file.metadata() or {}).get("producer") == _PRODUCER
            return {key: file.get_tensor(key) for key in file.keys()}, is_ours
    except package.SafetensorError as error:
        raise CheckpointError(f"{str(path)!r} is not a safetensors file: {error}") from None
