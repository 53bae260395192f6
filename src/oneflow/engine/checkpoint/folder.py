"""A checkpoint on disk: one folder per variable, its raw values in ``out``, their shape and dtype in ``meta``.

    <dir>/<variable>/out      the whole tensor, C order, little endian, no header
    <dir>/<variable>/meta     text: a shape block with one dim per line, and the data type
    <dir>/snapshot_done       empty, written last

Checkpoints of earlier programs have no ``meta``; then shape and dtype come from the variable that is loaded.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from oneflow.engine.checkpoint.writing import beside, sync_folder, write_file
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import CheckpointError
from oneflow.engine.core.spec import TensorSpec

DONE = "snapshot_done"
_BY_NAME = {d.checkpoint_name: d for d in dtypes.ALL}
LARGEST_META = 2**16
_META = re.compile(r"\s*shape\s*\{((?:\s*dim:\s*\d{1,19})*)\s*\}\s*data_type:\s*(\w+)\s*", re.ASCII)


def write_checkpoint(path: str | os.PathLike[str], values: Mapping[str, np.ndarray]) -> None:
    """Writes all values beside ``path`` and renames: whatever happens, ``path`` is absent, as it was, or whole."""
    target = Path(path)
    _check_free(target)
    for name in values:
        if "/" in name or "\0" in name or name in ("", ".", "..", DONE) or not _is_text(name):
            raise CheckpointError(
                f"a variable called {name!r} cannot be saved: it cannot name a folder of the checkpoint"
            )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with beside(target) as folder:
            for name, value in values.items():
                _write_variable(folder / name, value)
            write_file(folder / DONE, b"")
            sync_folder(folder)
            os.rename(folder, target)
        sync_folder(target.parent)
    except OSError as error:
        raise CheckpointError(
            f"cannot save a checkpoint to {str(target)!r}: {error.strerror}; choose another path"
        ) from None


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_free(target: Path) -> None:
    if "\0" in str(target):
        raise CheckpointError(
            f"cannot save a checkpoint to {str(target)!r}: no path has a zero byte; choose another path"
        )
    if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        kind = "a folder with files in it" if target.is_dir() else "a file"
        raise CheckpointError(
            f"cannot save a checkpoint to {str(target)!r}: it is {kind}; remove it or choose another path"
        )


def _write_variable(folder: Path, value: np.ndarray) -> None:
    folder.mkdir()
    write_file(folder / "out", np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"), copy=False).tobytes())
    write_file(folder / "meta", meta_text(value.shape, dtypes.from_numpy(value.dtype).checkpoint_name).encode())
    sync_folder(folder)


@dataclass(frozen=True)
class FileValue:
    """A variable's value in a checkpoint; read when asked for."""

    name: str
    folder: Path
    spec: TensorSpec | None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._known().shape

    @property
    def dtype(self) -> torch.dtype:
        return self._known().dtype.torch

    def _known(self) -> TensorSpec:
        if self.spec is None:
            raise CheckpointError(
                f"checkpoint {str(self.folder)!r} has no meta file, so the shape of {self.name!r} is not known here"
            )
        return self.spec

    def numpy(self, expected: TensorSpec | None = None) -> np.ndarray:
        """The values; ``expected`` says what they must be, or stands in for a missing ``meta``."""
        if expected is not None and self.spec is not None and not _same(expected, self.spec):
            raise CheckpointError(
                f"variable {self.name!r} is {expected}, checkpoint {str(self.folder)!r} holds {self.spec}"
            )
        spec = expected or self._known()
        assert spec.dtype.numpy is not None
        size = spec.elements * spec.dtype.numpy.itemsize
        with open_regular(self.folder / "out") as file:
            found = os.fstat(file.fileno()).st_size
            data = file.read() if found == size else b""
        if len(data) != size:
            raise CheckpointError(
                f"unexpected model snapshot size: {str(self.folder / 'out')!r} has {found} bytes, variable "
                f"{self.name!r} {spec} needs {size}"
            )
        return np.frombuffer(data, spec.dtype.numpy.newbyteorder("<")).astype(spec.dtype.numpy).reshape(spec.shape)


def _same(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether both have the same bytes; char and int8 do."""
    return (a.shape, a.dtype.torch) == (b.shape, b.dtype.torch)


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, FileValue]:
    """Every variable of a checkpoint by name, or the one variable that ``path`` itself is the folder of.

    ``path`` may be a link; what is inside is read only where it lies there itself.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise CheckpointError(f"checkpoint {str(folder)!r} is not a folder")
    if (folder / "out").is_file():
        return {folder.name: _file_value(folder)}
    variables = [sub for sub in sorted(folder.iterdir()) if (sub / "out").is_file()]
    _require_no_link(*variables)
    found = {sub.name: _file_value(sub) for sub in variables}
    if not found:
        raise CheckpointError(
            f"{str(folder)!r} holds no variables: a checkpoint has a folder with a file 'out' for each"
        )
    if not (folder / DONE).is_file():
        warnings.warn(
            f"checkpoint {str(folder)!r} has no file {DONE!r}, which is written last: variables may be missing in it",
            stacklevel=3,
        )
    return found


def _file_value(folder: Path) -> FileValue:
    meta = folder / "meta"
    _require_no_link(folder / "out", meta)
    return FileValue(folder.name, folder, _parse_meta(meta) if meta.is_file() else None)


def _require_no_link(*paths: Path) -> None:
    for path in paths:
        if path.is_symlink():
            raise CheckpointError(
                f"{str(path)!r} is a link, which could lead anywhere and is not followed; put what it leads to in its "
                f"place"
            )


def open_regular(path: Path) -> BinaryIO:
    """Opens a plain file for reading. A link could lead anywhere, and reading from a pipe or a device need not end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(f"cannot read {str(path)!r}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CheckpointError(f"cannot read {str(path)!r}: it is no plain file")
    return os.fdopen(handle, "rb")


def meta_text(shape: Sequence[int], data_type: str) -> str:
    """What a ``meta`` file holds: a message in the text form of protocol buffers."""
    dims = "".join(f"  dim: {n}\n" for n in shape)
    return f"shape {{\n{dims}}}\ndata_type: {data_type}\n"


def parse_meta(text: str) -> tuple[tuple[int, ...], str] | None:
    """Shape and data type of a ``meta`` file; None if it is none."""
    match = _META.fullmatch(text)
    return None if match is None else (tuple(int(n) for n in re.findall(r"\d+", match[1])), match[2])


def _parse_meta(path: Path) -> TensorSpec:
    with open_regular(path) as file:
        text = file.read(LARGEST_META + 1).decode(errors="replace")
    found = parse_meta(text) if len(text) <= LARGEST_META else None
    if found is None or found[1] not in _BY_NAME:
        raise CheckpointError(
            f"{str(path)!r} is not a checkpoint's meta file: expected a shape block and a data_type of {list(_BY_NAME)}"
        )
    return TensorSpec(found[0], _BY_NAME[found[1]])
