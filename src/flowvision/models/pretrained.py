"""Weights for the zoo: files that people have, checked and loaded strictly. Nothing is fetched: where a file is
missing, the error says what to put where."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

import torch
from tqdm import tqdm

import oneflow as flow
import oneflow.nn as nn
from oneflow import Tensor
from oneflow.engine.checkpoint.objects import PICKLED
from oneflow.engine.core.errors import ArgumentError, DataError, nearest

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_HASHED = re.compile(r"-([0-9a-f]{8})\.pth$")  # torch's hub: the file's name ends with the beginning of its SHA-256
_WRAPPERS = ("state_dict", "model", "model_state", "module", "net")
_HUGGING_FACE = ("model.safetensors", "pytorch_model.bin")
_CHUNK = 1 << 22

Rename = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def get_cache_dir(model_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where ``pretrained=True`` looks: ``model_dir``, else $FLOWVISION_CACHE, else ``~/.oneflow/flowvision_cache``."""
    return Path(model_dir or os.environ.get("FLOWVISION_CACHE") or Path.home() / ".oneflow" / "flowvision_cache")


def load_weights(model: nn.Module, name: str, source: bool | str | os.PathLike[str], progress: bool = True) -> None:
    """Loads a weight file into ``model``, all or nothing: every name and shape must fit.

    ``source`` is a file (.safetensors, or of ``torch.save``), a folder of ``flow.save`` or with one file (such as
    Hugging Face's), or True for the cache folder. A hash in the file's name, as torch's hub writes it, is compared;
    ``progress`` shows a bar meanwhile on a terminal.
    """
    path = found_in_cache(name) if source is True else _in_folder(Path(str(source)), name)
    if path is None:
        raise DataError(_missing(name))
    _load(model, name, path, read_weights(path, progress))


def read_weights(path: Path, progress: bool = True) -> dict[str, Tensor]:
    """The tensors of a weight file by name; a hash in the file's name is compared."""
    _check_hash(path, progress)
    return _state(path)


def found_in_cache(name: str) -> Path | None:
    """The weight file of a network in the cache folder: ``<name>.safetensors``, ``<name>.pth``, ``<name>-<hash>.pth``,
    or a folder ``<name>``."""
    folder = get_cache_dir()
    for suffix in SUFFIXES:
        if (folder / f"{name}{suffix}").is_file():
            return folder / f"{name}{suffix}"
    if hashed := sorted(
        file
        for file in folder.glob(f"{name}-*.pth")
        if _HASHED.search(file.name) and file.name == f"{name}-{file.stem[-8:]}.pth"
    ):
        return hashed[0]
    return _in_folder(folder / name, name) if (folder / name).is_dir() else None


def _missing(name: str) -> str:
    return (
        f"there are no weights for {name} in {get_cache_dir()}, and none are fetched. Put a file {name}.safetensors or "
        f"{name}.pth there "
        f"(the weights of torchvision, timm or Hugging Face for this network), or give pretrained= its path"
    )


def _in_folder(path: Path, name: str) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise DataError(f"there is no weight file {path} for {name}")
    if (path / PICKLED).is_file():
        return path  # a folder of flow.save, OneFlow's or ours
    for file in _HUGGING_FACE:
        if (path / file).is_file():
            _check_config(path, name)
            return path / file
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if len(files) != 1:
        listed = ", ".join(file.name for file in files) or "none"
        raise DataError(
            f"{path} should have one weight file for {name} ({', '.join(_HUGGING_FACE)}, or one of "
            f"{', '.join(SUFFIXES)}); it has {listed}; or be one of flow.save"
        )
    return files[0]


def _check_config(folder: Path, name: str) -> None:
    """A Hugging Face folder says which network it is of; transformers' networks have other names inside."""
    config = folder / "config.json"
    if not config.is_file():
        return
    try:
        said = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{config} is not JSON: {error}") from None
    if "architectures" in said and "architecture" not in said:
        raise DataError(
            f"{folder} has {said['architectures'][0]} of the transformers library, whose names inside differ; take "
            f"timm's folder of {name}"
        )


def _check_hash(path: Path, progress: bool) -> None:
    expected = _HASHED.search(path.name)
    if expected is None:
        return
    digest = hashlib.sha256()
    with path.open("rb") as file, _bar(path, progress) as count:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            count(len(chunk))
    if not digest.hexdigest().startswith(expected[1]):
        raise DataError(
            f"{path} should have a SHA-256 that begins with {expected[1]}, it has {digest.hexdigest()[:8]}; the file "
            f"is damaged or another"
        )


@contextmanager
def _bar(path: Path, progress: bool) -> Iterator[Callable[[int], object]]:
    """What to call with each number of bytes: on a terminal it draws a bar; otherwise tqdm, which starts a thread, is
    left alone."""
    if not (progress and sys.stderr.isatty()):
        yield lambda _: None
        return
    with tqdm(total=path.stat().st_size, unit="B", unit_scale=True, desc=path.name) as bar:
        yield bar.update


def _state(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name; programs inside it are not run."""
    try:
        if path.is_dir():
            loaded = flow.load(path)
        elif path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError:
        raise DataError(f"{path} needs the package safetensors: pip install 'oneflow-torch[safetensors]'") from None
    except UnpicklingError as error:
        raise DataError(f"{path} has more than tensors in it, and is not run: {str(error).splitlines()[0]}") from None
    except Exception as error:  # safetensors and torch have errors of their own for broken files
        raise DataError(
            f"{path} cannot be read as weights: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        ) from None
    for wrapper in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapper), Mapping):
            loaded = loaded[wrapper]
    if not isinstance(loaded, Mapping) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise DataError(f"{path} has no tensors by name, but {type(loaded).__name__}")
    return {key.removeprefix("module."): value for key, value in loaded.items()}


def _load(model: nn.Module, name: str, path: Path, state: dict[str, Tensor]) -> None:
    state = renamed(model, state)
    own = model.state_dict()
    # Counters of batches are younger than many files, and nothing depends on them here.
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    more = [key for key in state if key not in own]
    if missing or more:
        raise ArgumentError(f"{path} does not fit {name}: {_difference(missing, more, own)}")
    for key, value in state.items():
        if value.shape != own[key].shape:
            raise ArgumentError(
                f"{path} has {key} of shape {list(value.shape)}, {name} has {list(own[key].shape)}; other num_classes, "
                f"or another picture size?"
            )
    model.load_state_dict({**{key: own[key] for key in own if key not in state}, **state})


def _difference(missing: list[str], more: list[str], own: Iterable[str]) -> str:
    parts = []
    if missing:
        parts.append(f"{len(missing)} tensors are missing, such as {missing[0]}")
    if more:
        parts.append(f"{len(more)} are too many, such as {more[0]}{nearest(more[0], own)}")
    return "; ".join(parts)


# ------------------------------------------------------------------ other names for the same tensors


def accepts(model: nn.Module, rename: Rename) -> None:
    """Makes ``model`` load state dicts with another library's names too, by ``load_state_dict`` as well."""
    model.__dict__["_rename"] = rename

    def before(module: nn.Module, state: dict[str, Tensor], prefix: str, *_: object) -> None:
        mine = {key[len(prefix) :]: state.pop(key) for key in list(state) if key.startswith(prefix)}
        state.update({prefix + key: value for key, value in rename(mine).items()})

    model.register_load_state_dict_pre_hook(before)


def renamed(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    rename = model.__dict__.get("_rename")
    return rename(state) if rename else state


def by_patterns(patterns: Iterable[tuple[str, str]], drop: str | None = None) -> Rename:
    """Renames by regular expressions, the first that matches a whole name; names that match ``drop`` are left out."""
    compiled = [(re.compile(pattern), target) for pattern, target in patterns]
    dropped = re.compile(drop) if drop else None

    def rename(state: dict[str, Tensor]) -> dict[str, Tensor]:
        found = {}
        for key, value in state.items():
            if dropped and dropped.fullmatch(key):
                continue
            for pattern, target in compiled:
                if pattern.fullmatch(key):
                    key = pattern.sub(target, key)
                    break
            found[key] = value
        return found

    return rename
