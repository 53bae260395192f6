"""Weights of torch models: ``.pt`` and ``.pth`` files, safetensors files, and state dicts in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from oneflow.engine.checkpoint.adopt import Loaded, Origin, Table, adopt, listed
from oneflow.engine.checkpoint.safetensors import read_safetensors
from oneflow.engine.core.errors import ArgumentError, CheckpointError
from oneflow.engine.core.tracebacks import entry

# torch's batch norm counts its steps; nothing here reads that.
_NO_WEIGHT = ".num_batches_tracked"


@entry
def from_torch(
    state: Mapping[str, torch.Tensor] | str | os.PathLike[str],
    table: Table = None,
    job: Callable[..., Any] | None = None,
    strict: bool = True,
    cast: bool = False,
) -> Loaded:
    """Sets variables from a torch state dict, or a ``.pt``, ``.pth`` or ``.safetensors`` file of one.

    ``table`` has for each variable the key of its value, as a dictionary or a function of the variable's name; without
    it, or for variables that the dictionary does not name, the key is the variable's name. A pair (key, order) also
    puts the dims of the value in that order; None leaves the variable as it is. Filters of convolutions with the
    channels last are brought into that layout where the shapes leave no doubt. ``job`` takes the variables of one job
    only.

    Everything is checked before the first variable is changed. Variables without a value and keys without a variable
    are an error, or with ``strict=False`` part of what is returned; the step counts of torch's batch norms are passed
    over. ``cast`` converts floats of another width.
    """
    return adopt(_read(state), table, job, strict, cast)


def _read(state: Any) -> Origin:
    if isinstance(state, Mapping):
        return _origin("the state dict", state)
    if not isinstance(state, (str, os.PathLike)):
        raise ArgumentError(f"from_torch takes a state dict or the path of a file with one, got {type(state).__name__}")
    path = Path(state)
    if not path.is_file():
        raise CheckpointError(f"there is no file {str(path)!r} to load weights from")
    if path.suffix == ".safetensors":
        values, is_ours = read_safetensors(path)
        return _origin(repr(str(path)), values, is_ours)
    return _origin(repr(str(path)), read_torch_file(path))


def _origin(name: str, state: Any, is_ours: bool = False) -> Origin:
    values = _require_tensors(state, name)
    return Origin(name, values, is_ours, frozenset(key for key in values if key.endswith(_NO_WEIGHT)))


def read_torch_file(path: Path, map_location: Any = "cpu") -> Any:
    """What ``torch.save`` has written: tensors and plain values, never objects. A file that names anything else is
    refused unread."""
    if path.stat().st_size == 0:
        raise CheckpointError(
            f"{str(path)!r} is not a file of torch tensors: it is empty, as a save or a download that broke off leaves "
            f"it"
        )
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except Exception as error:  # a damaged file fails in torch, in its reader of zip files or in the pickle
        reason = (str(error).strip() or type(error).__name__).split("\n", 1)[0]
        raise CheckpointError(
            f"{str(path)!r} is not a file of torch tensors: {reason}. Only tensors are read, never objects; save "
            f"model.state_dict()"
        ) from None


def _require_tensors(state: Any, name: str) -> Mapping[str, torch.Tensor]:
    if not isinstance(state, Mapping):
        raise CheckpointError(
            f"{name} holds a {type(state).__name__}, expected a dictionary of tensors by name, as model.state_dict() "
            f"gives"
        )
    others = [
        str(key) for key, value in state.items() if not isinstance(key, str) or not isinstance(value, torch.Tensor)
    ]
    if others:
        raise CheckpointError(
            f"{name} holds more than tensors by name ({listed(others)}); give the dictionary of weights alone, "
            "such as torch.load(path, weights_only=True)['state_dict']"
        )
    return state
