"""Folders as ``transformers`` saves them: ``config.json`` and the weights, in one file or in several with an index."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

import oneflow as flow
from oneflow.engine.checkpoint.writing import sync_folder
from oneflow.engine.core.errors import CheckpointError, nearest
from oneflow.engine.core.optional import optional_package

CONFIG = "config.json"
_KINDS = (("pytorch_model.bin", "*.bin"), ("model.safetensors", "*.safetensors"))
_OTHERS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")  # *.bin that hold no weights
_MOST_IN_A_FILE = 5 * 10**9


class NoWeightsError(CheckpointError, EnvironmentError):
    """A folder without weights that can be read."""

    def __str__(self) -> str:
        return str(self.args[0])


def read_config(folder: Path) -> dict[str, Any] | None:
    """``config.json``; None if there is none."""
    path = folder / CONFIG
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NoWeightsError(
            f"{str(path)!r} is no JSON: {error}; take the one that was published with the weights"
        ) from None
    if not isinstance(found, dict):
        raise NoWeightsError(f"{str(path)!r} holds a {type(found).__name__}, and not the settings of a model")
    return found


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder by name. Nothing that a file says is executed."""
    found: dict[str, Tensor] = {}
    for path in weight_files(folder):
        content = flow.load(path)
        inner = content.get("state_dict", content) if isinstance(content, Mapping) else None
        if not isinstance(inner, Mapping) or not all(isinstance(value, Tensor) for value in inner.values()):
            raise NoWeightsError(f"{str(path)!r} holds no tensors by name, but a {type(content).__name__}")
        found |= inner
    return found


def weight_files(folder: Path) -> list[Path]:
    """The files with the weights: what an index says, else ``*.bin``, else ``*.safetensors``."""
    if not folder.is_dir():
        beside = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        raise NoWeightsError(
            f"there is no folder {str(folder)!r}; give one that save_pretrained of transformers has "
            f"written.{nearest(folder.name, beside)}"
        )
    for name, pattern in _KINDS:
        files = [path for path in sorted(folder.glob(pattern)) if not path.name.startswith(_OTHERS)]
        if files:
            index = folder / f"{name}.index.json"
            return _indexed(index) if index.is_file() else files
    left = [folder / f"{name}.index.json" for name, _ in _KINDS if (folder / f"{name}.index.json").is_file()]
    if left:
        return _indexed(left[0])  # says what is missing
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise NoWeightsError(
        f"{str(folder)!r} has no *.bin and no *.safetensors, but {there}; give a folder that save_pretrained of "
        f"transformers has written"
    )


def _indexed(index: Path) -> list[Path]:
    names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise NoWeightsError(
            f"{str(index)!r} names {len(names)} files, and {', '.join(missing)} is missing; fetch all of them"
        )
    return [index.parent / name for name in names]


def write_folder(
    folder: Path, config: Mapping[str, Any], weights: Iterable[tuple[str, Tensor]], most: int = _MOST_IN_A_FILE
) -> None:
    """Writes a folder that ``from_pretrained`` reads, in files of at most ``most`` bytes. It is written beside its
    place and renamed; an existing one is an error."""
    if folder.exists():
        raise CheckpointError(f"{str(folder)!r} exists; remove it or choose another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    try:
        _write_weights(beside, weights, most)
        (beside / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        beside.chmod(0o755)
        os.rename(beside, folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _write_weights(folder: Path, weights: Iterable[tuple[str, Tensor]], most: int) -> None:
    save = optional_package("safetensors.torch", "safetensors", "export_to_huggingface").save_file
    parts: list[Path] = []
    place: dict[str, int] = {}
    now: dict[str, Tensor] = {}
    size = total = 0

    def put() -> None:
        parts.append(folder / f"part-{len(parts)}")
        save(now, parts[-1], metadata={"format": "pt"})

    for name, value in weights:
        if now and size + value.nbytes > most:
            put()
            now, size = {}, 0
        now[name], place[name] = value.contiguous(), len(parts)
        size, total = size + value.nbytes, total + value.nbytes
    put()
    if len(parts) == 1:
        os.rename(parts[0], folder / "model.safetensors")
        return
    names = [f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors" for i in range(len(parts))]
    for part, name in zip(parts, names):
        os.rename(part, folder / name)
    index = {"metadata": {"total_size": total}, "weight_map": {name: names[i] for name, i in place.items()}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
