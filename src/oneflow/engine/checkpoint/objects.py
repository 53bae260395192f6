"""``flow.save`` and ``flow.load``: any structure of tensors and plain values, as a directory.

    <path>/pickled_data       a pickle of {"protocol_version": 1, "data": object}, in which references stand for tensors
    <path>/tensor_<n>/out     the values of a tensor: C order, little endian, no header
    <path>/tensor_<n>/meta    its shape and data type, as text

Both names are older than tensors: a dictionary of variables or arrays by name is saved as the checkpoint of jobs that
it always was, and such folders are read too; so are files of torch and safetensors.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneflow.compat.spellings import spelled
from oneflow.engine.checkpoint.folder import DONE, FileValue, open_regular, read_checkpoint
from oneflow.engine.checkpoint.from_torch import read_torch_file
from oneflow.engine.checkpoint.mapping import Placed, placed
from oneflow.engine.checkpoint.restricted_pickle import RefusedGlobal, read_pickle, require_readable
from oneflow.engine.checkpoint.safetensors import is_safetensors, read_safetensors
from oneflow.engine.checkpoint.stored_tensor import FOLDER, StoredTensor
from oneflow.engine.checkpoint.tensor_files import DATA_TYPES, read_tensor, write_tensor
from oneflow.engine.checkpoint.variables import Variable, save_dict
from oneflow.engine.checkpoint.writing import beside, put_in_place, sync_folder, sync_tree
from oneflow.engine.core.errors import ArgumentError, CheckpointError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.global_tensor.tensor import is_global
from oneflow.engine.world import current_world

PICKLED = "pickled_data"
VERSION = 1
_PROTOCOL = 4  # of the pickle; one that every Python of OneFlow's years reads


class NoLoadMethodError(CheckpointError, NotImplementedError):
    """A path at which there is nothing that can be loaded."""


class NotGlobalError(CheckpointError, RuntimeError):
    """A local tensor where every tensor must be global."""


@spelled("save")
def save(obj: Any, path: str | os.PathLike[str], global_dst_rank: int | None = None) -> None:
    """Saves tensors, and plain values and containers with tensors anywhere inside, as a directory.

    A saved directory at ``path`` is replaced once the new one is whole; anything else in the way is an error. Tensors
    that are one object, or share all of their memory, are stored once. What ``flow.load`` would not read, such as
    objects with code, is refused here. A dictionary of nothing but arrays or variables by name is saved as a checkpoint
    of jobs. With ``global_dst_rank`` every tensor must be global.
    """
    target = _as_path(path)
    if global_dst_rank is None and _is_of_jobs(obj):
        save_dict(obj, path)
        return
    pickler = _pickled(obj)
    if global_dst_rank is None:
        _require_local(pickler)
        _write(target, pickler)
    else:
        _require_rank("global_dst_rank", global_dst_rank)
        _save_global(target, pickler, global_dst_rank)


@entry
def load(
    path: str | os.PathLike[str],
    global_src_rank: int | None = None,
    map_location: Any = None,
    *,
    support_pytorch_format: bool = True,
) -> Any:
    """Loads what ``flow.save`` has saved, here or in OneFlow; a checkpoint of jobs, as tensors by name; or a file of
    torch or safetensors.

    Nothing that a file says is executed, and files that are cut off or damaged are refused. Tensors come on the CPU, or
    where ``map_location`` says: a device, its name, or what ``torch.load`` takes. ``support_pytorch_format=False``
    leaves files of torch alone. With ``global_src_rank`` that rank alone reads, and the tensors are global, whole on
    that rank; all ranks call this.
    """
    if global_src_rank is not None:
        _require_rank("global_src_rank", global_src_rank)
        from oneflow.engine.global_tensor.gather_to import from_rank  # with it come the rules of every op

        return from_rank(
            lambda: load(path, None, map_location, support_pytorch_format=support_pytorch_format), global_src_rank
        )
    where, source = placed(map_location), _as_path(path)
    if source.is_dir():
        return _from_folder(source, where)
    if source.is_file():
        return _from_file(source, where, support_pytorch_format)
    raise NoLoadMethodError(
        f"No valid load method found for {str(source)!r}: there is nothing at that path. Give one that flow.save has "
        f"written"
    )


def _as_path(path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\0" in str(path):
        raise ArgumentError(f"a path is a string or a pathlib.Path without zero bytes, got {path!r}")
    return Path(path)


def _is_of_jobs(obj: Any) -> bool:
    """Whether it is what programs of jobs save: variables and arrays by name, without a tensor."""
    kinds = (np.ndarray, Variable, FileValue)
    return (
        isinstance(obj, Mapping)
        and len(obj) > 0
        and all(isinstance(k, str) and isinstance(v, kinds) for k, v in obj.items())
    )


def _require_rank(name: str, rank: Any) -> None:
    world = current_world()
    if type(rank) is not int or not 0 <= rank < world.size:
        raise ArgumentError(f"{name} is the number of a rank, from 0 to {world.size - 1} in this run; got {rank!r}")


def _require_local(pickler: _Pickler) -> None:
    spread = sum(is_global(tensor) for tensor in pickler.tensors.values())
    if spread:
        raise CheckpointError(
            f"{spread} tensors are global; name the rank that writes them for all with global_dst_rank=, or save their "
            f"to_local()"
        )


def _save_global(target: Path, pickler: _Pickler, rank: int) -> None:
    """One rank writes for all, tensor by tensor; an error of that rank is one of all."""
    local = sum(not is_global(tensor) for tensor in pickler.tensors.values())
    if local:
        raise NotGlobalError(
            f"with global_dst_rank={rank} every tensor must be global, and {local} are local; leave global_dst_rank "
            f"out to save local tensors"
        )
    if not pickler.tensors:  # nothing to gather: the ranks need not meet
        if current_world().rank == rank:
            _write(target, pickler)
        return
    from oneflow.engine.global_tensor.gather_to import all_succeeded, whole_at  # with it come the rules of every op

    gathered = ((name, whole_at(tensor, rank)) for name, tensor in pickler.tensors.items())  # type: ignore[arg-type]
    error: CheckpointError | None = None
    if current_world().rank == rank:
        try:
            _write(target, pickler, gathered)
        except CheckpointError as found:
            error = found
    for _ in gathered:  # those that were not written yet: the other ranks bring them
        pass
    if not all_succeeded(error):
        raise error or CheckpointError(f"rank {rank} could not save to {str(target)!r}; its own error says why")


# --------------------------------------------------------------------------------------------------------------- saving


class _Pickler(pickle.Pickler):
    """Writes references in place of tensors, and collects the tensors by the name of their folder."""

    def __init__(self) -> None:
        self.file = io.BytesIO()
        super().__init__(self.file, _PROTOCOL)
        self.tensors: dict[str, torch.Tensor] = {}
        self._folders: dict[Any, str] = {}

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor):
            return NotImplemented
        _check_tensor(obj)
        kind = "global_tensor" if is_global(obj) else "tensor"
        folder = self._folders.setdefault(_memory(obj), f"{kind}_{len(self.tensors)}")
        self.tensors.setdefault(folder, obj)
        return StoredTensor, (folder, isinstance(obj, torch.nn.Parameter), obj.requires_grad)


def _memory(tensor: torch.Tensor) -> Any:
    """The same for tensors that see the same memory in the same way, as tied weights of a state_dict do."""
    if not tensor.numel() or is_global(tensor):
        return id(tensor)
    way = (
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
        tensor.is_conj(),
        tensor.is_neg(),
    )
    return (tensor.untyped_storage().data_ptr(), tensor.device, *way)


def _check_tensor(tensor: torch.Tensor) -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and not is_global(tensor):
        raise CheckpointError(f"flow.save cannot save a {type(tensor).__name__}; make a plain local tensor of it")
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        kind = (
            "meta"
            if tensor.is_meta
            else "quantized"
            if tensor.is_quantized
            else str(tensor.layout).removeprefix("torch.")
        )
        raise CheckpointError(f"flow.save cannot save a {kind} tensor; it saves dense tensors with values")
    if tensor.dtype not in DATA_TYPES:
        raise CheckpointError(
            f"flow.save cannot save a tensor of {tensor.dtype}; there are {[str(d) for d in DATA_TYPES]}"
        )


def _pickled(obj: Any) -> _Pickler:
    pickler = _Pickler()
    advice = "Save tensors, numbers, strings and containers of them, such as a state_dict()"
    try:
        pickler.dump({"protocol_version": VERSION, "data": obj})
        require_readable(pickler.file.getvalue())
    except RefusedGlobal as error:
        raise CheckpointError(f"flow.save cannot save {error.name!r}: flow.load reads no code. {advice}") from None
    except (pickle.PickleError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(f"flow.save cannot save this {type(obj).__name__}: {error}. {advice}") from None
    return pickler


def _write(path: Path, pickler: _Pickler, tensors: Iterable[tuple[str, Any]] | None = None) -> None:
    target = Path(os.path.realpath(path))  # a link stays, what it leads to is replaced
    try:
        _check_replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        with beside(target) as folder:
            for name, tensor in tensors if tensors is not None else pickler.tensors.items():
                write_tensor(folder / name, tensor)
            (folder / PICKLED).write_bytes(pickler.file.getvalue())
            sync_tree(folder)
            put_in_place(folder, target)
        sync_folder(target.parent)
    except OSError as error:
        raise CheckpointError(f"cannot save to {str(path)!r}: {error.strerror}; choose another path") from None


def _check_replaceable(target: Path) -> None:
    """Only what ``flow.save`` has written is replaced: a mistyped path should not cost anybody a folder."""
    if not target.exists():
        return
    if not target.is_dir():
        raise CheckpointError(f"cannot save to {str(target)!r}: it is a file; remove it or choose another path")
    if target.samefile(os.curdir):
        raise CheckpointError(f"cannot save to {str(target)!r}: it is the working directory; choose a folder inside it")
    others = sorted(
        entry.name for entry in target.iterdir() if entry.name != PICKLED and not FOLDER.fullmatch(entry.name)
    )
    if others:
        raise CheckpointError(
            f"cannot save to {str(target)!r}: it holds more than flow.save writes ({others[0]!r}); choose another path"
        )


# -------------------------------------------------------------------------------------------------------------- loading


def _from_folder(folder: Path, where: Placed) -> Any:
    if os.path.lexists(folder / PICKLED):
        return _Directory(folder, where).read()
    if (folder / DONE).is_file() or (folder / "out").is_file() or any(_is_variable(sub) for sub in folder.iterdir()):
        return _checkpoint_of_jobs(folder, where)
    raise NoLoadMethodError(
        f"No valid load method found for {str(folder)!r}: the folder has neither {PICKLED!r} nor variables. Give one "
        f"that flow.save has written"
    )


def _is_variable(folder: Path) -> bool:
    """Whether it is a variable of a job, and not what is left of a saved directory whose 'pickled_data' is missing."""
    return (folder / "out").is_file() and not FOLDER.fullmatch(folder.name)


class _Directory:
    """A saved directory that is being read; each tensor of it is read once."""

    def __init__(self, folder: Path, where: Placed) -> None:
        self._folder = folder
        self._where = where
        self._values: dict[str, torch.Tensor] = {}

    def read(self) -> Any:
        file = self._folder / PICKLED
        with open_regular(file) as opened:
            content = read_pickle(opened.read(), repr(str(file)), self._tensor)
        if not isinstance(content, dict) or content.keys() != {"protocol_version", "data"}:
            raise CheckpointError(
                f"{str(file)!r} holds no saved object: expected a dictionary of 'protocol_version' and 'data'"
            )
        if content["protocol_version"] != VERSION:
            raise CheckpointError(
                f"{str(file)!r} has the protocol version {content['protocol_version']!r}, this program reads version "
                f"{VERSION}"
            )
        return content["data"]

    def _tensor(self, reference: StoredTensor) -> torch.Tensor:
        if reference.folder not in self._values:
            self._values[reference.folder] = self._where(read_tensor(self._folder / reference.folder))
        value = self._values[reference.folder].detach()
        if reference.requires_grad and not (value.is_floating_point() or value.is_complex()):
            raise CheckpointError(
                f"{str(self._folder)!r} says that {reference.folder!r} of {value.dtype} requires a gradient: it is "
                f"damaged"
            )
        if reference.is_parameter:
            return torch.nn.Parameter(value, requires_grad=reference.requires_grad)
        return value.requires_grad_(reference.requires_grad)


def _checkpoint_of_jobs(folder: Path, where: Placed) -> Any:
    """The variables by name as tensors; as they are in files where older programs have not written down their
    shapes."""
    found = read_checkpoint(folder)
    if any(value.spec is None for value in found.values()):
        values: dict[str, Any] = dict(found)
    else:
        values = {name: where(read_tensor(value.folder)) for name, value in found.items()}
    return next(iter(values.values())) if (folder / "out").is_file() else values


def _from_file(file: Path, where: Placed, of_torch: bool) -> Any:
    if is_safetensors(file):
        return {name: where(value) for name, value in read_safetensors(file)[0].items()}
    if of_torch:
        return read_torch_file(file, where.for_torch)
    raise NoLoadMethodError(
        f"No valid load method found for {str(file)!r}: it is no folder and no safetensors file; "
        "support_pytorch_format=True reads files of torch"
    )
