"""TensorFlow's checkpoints read into arrays: V2 (an index and data files) and V1 (one table, or several). Nothing in
them is executed."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from flowvision.models.slim.checkpoint import messages
from flowvision.models.slim.checkpoint.messages import BundleEntry, Extent
from flowvision.models.slim.checkpoint.table import is_table, read_table
from oneflow.engine.core.errors import DataError, nearest
from oneflow.engine.data.formats.tfrecord import masked_crc

_SUFFIX = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_LATEST = re.compile(r'^model_checkpoint_path:\s*"(.*)"\s*$', re.MULTILINE)


def load_slim_checkpoint(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Every array of a TensorFlow checkpoint by its name, in TensorFlow's layout: give it to ``load_slim_variables``.

    ``path`` is what TensorFlow calls the prefix (``model.ckpt-1000``, of which there are ``.index`` and ``.data-...``
    files), one of these files, a file of the older format (``vgg_16.ckpt``), or a folder with a file ``checkpoint``.
    Strings are left out; bfloat16 numbers become float32. Damage is an error that names the file, the block or byte,
    and the variable.
    """
    prefix = _prefix(Path(path))
    index = Path(f"{prefix}.index")
    if index.exists():
        return dict(_bundle(prefix, index))
    if prefix.is_file():
        return dict(_tables([prefix]))
    if shards := sorted(prefix.parent.glob(f"{prefix.name}-?????-of-?????")):
        return dict(_tables(shards))
    raise DataError(_nothing_there(prefix))


def _prefix(path: Path) -> Path:
    if not path.is_dir():
        return Path(_SUFFIX.sub("", os.fspath(path)))
    state = path / "checkpoint"
    latest = _LATEST.search(state.read_text(encoding="utf-8")) if state.is_file() else None
    if latest is None:
        raise DataError(
            f"{path} has no file 'checkpoint' that names its latest one; give the prefix, such as "
            f"{path / 'model.ckpt-1000'}"
        )
    named = path / latest[1]
    # Folders are moved after training; the name of the file is what lasts.
    return named if Path(f"{named}.index").exists() or named.exists() else path / Path(latest[1]).name


def _nothing_there(prefix: Path) -> str:
    if not prefix.parent.is_dir():
        return f"there is no folder {prefix.parent} for the checkpoint {prefix.name}"
    known = sorted({_SUFFIX.sub("", file.name) for file in prefix.parent.iterdir() if file.is_file()})
    return f"there is no checkpoint {prefix}: neither {prefix.name}.index nor a file of that name.{nearest(prefix.name, known)}"


# ------------------------------------------------------------------ V2


def _bundle(prefix: Path, index: Path) -> Iterator[tuple[str, np.ndarray]]:
    entries: dict[bytes, tuple[BundleEntry, int]] = {}
    header: tuple[int, bool] | None = None
    for key, value, block in read_table(index):
        try:
            if key == b"":
                header = messages.bundle_header(value)
            else:
                entries[key] = messages.bundle_entry(value), block
        except DataError as error:
            raise DataError(f"{index}, block at byte {block}, variable {_text(key)}: {error}") from None
    if header is None:
        raise DataError(f"{index} has no header; it is a table, but not the index of a checkpoint")
    data = _DataFiles(prefix, *header)
    for key, (entry, block) in entries.items():
        if key.startswith(b"\0") or entry.dtype == messages.STRING:
            continue  # parts of arrays come with their array; strings are not weights
        name, where = _text(key), f"{index}, block at byte {block}, variable {_text(key)}"
        _require_dtype(entry.dtype, where)
        yield name, _joined(data, name, entry, entries, where) if entry.slices else data.array(name, entry)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _joined(
    data: _DataFiles, name: str, entry: BundleEntry, entries: dict[bytes, tuple[BundleEntry, int]], where: str
) -> np.ndarray:
    """An array that was kept in parts, as partitioned variables are."""
    whole = np.empty(entry.shape, np.float32 if entry.dtype == messages.BFLOAT16 else messages.DTYPES[entry.dtype])
    filled = 0
    for extents in entry.slices:
        found = entries.get(messages.slice_key(name, extents))
        if found is None:
            raise DataError(f"{where}: the part {extents} of it is missing")
        part = data.array(name, found[0])
        whole[_region(extents, entry.shape, where)] = part
        filled += part.size
    if filled != whole.size:
        raise DataError(f"{where}: its parts have {filled} of {whole.size} numbers")
    return whole


def _region(extents: list[Extent], shape: tuple[int, ...], where: str) -> tuple[slice, ...]:
    if len(extents) != len(shape) or any(
        length is not None and start + length > size for (start, length), size in zip(extents, shape)
    ):
        raise DataError(f"{where}: a part {extents} does not fit into shape {list(shape)}")
    return tuple(slice(None) if length is None else slice(start, start + length) for start, length in extents)


class _DataFiles:
    """The files of a V2 checkpoint that have the numbers; each is opened when it is first asked for."""

    def __init__(self, prefix: Path, count: int, is_big_endian: bool) -> None:
        self._paths = [Path(f"{prefix}.data-{number:05d}-of-{count:05d}") for number in range(count)]
        self._is_big_endian = is_big_endian
        self._maps: dict[int, np.ndarray] = {}

    def array(self, name: str, entry: BundleEntry) -> np.ndarray:
        raw = self._bytes(name, entry)
        dtype = messages.DTYPES[entry.dtype].newbyteorder(">" if self._is_big_endian else "<")
        return _as_float32(np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="), copy=False), entry.dtype).reshape(
            entry.shape
        )

    def _bytes(self, name: str, entry: BundleEntry) -> bytes:
        if entry.shard >= len(self._paths):
            raise DataError(f"variable {name} is said to be in file {entry.shard} of {len(self._paths)}")
        path = self._paths[entry.shard]
        where = f"{path}, block at byte {entry.offset}, variable {name}"
        expected = math.prod(entry.shape) * messages.DTYPES[entry.dtype].itemsize
        if entry.size != expected or min(entry.shape, default=0) < 0:
            raise DataError(f"{where}: {entry.size} bytes for shape {list(entry.shape)}, which takes {expected}")
        file = self._file(entry.shard, name)
        if entry.offset + entry.size > file.size:
            raise DataError(
                f"{where}: it ends at byte {entry.offset + entry.size}, the file at {file.size}; it was cut off"
            )
        raw = file[entry.offset : entry.offset + entry.size].tobytes()
        if entry.crc is not None and (found := masked_crc(raw)) != entry.crc:
            raise DataError(
                f"{where}: its CRC is {entry.crc:#010x} in the index and {found:#010x} by its bytes; the file is "
                f"damaged"
            )
        return raw

    def _file(self, number: int, name: str) -> np.ndarray:
        if number not in self._maps:
            path = self._paths[number]
            if not path.is_file():
                raise DataError(
                    f"{path} is missing: it has variable {name}; the index and all data files of a checkpoint belong "
                    f"together"
                )
            self._maps[number] = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        return self._maps[number]


def _as_float32(values: np.ndarray, dtype: int) -> np.ndarray:
    if dtype != messages.BFLOAT16:
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)


def _require_dtype(dtype: int, where: str) -> None:
    if dtype not in messages.DTYPES:
        raise DataError(f"{where}: dtype number {dtype} of TensorFlow is not one of numbers")


# ------------------------------------------------------------------ V1


def _tables(paths: list[Path]) -> Iterator[tuple[str, np.ndarray]]:
    """Each file has the shapes of all arrays under the empty key, then the arrays or parts of them."""
    arrays: dict[str, np.ndarray] = {}
    filled: dict[str, int] = {}
    for path in paths:
        if not is_table(path):
            raise DataError(
                f"{path} is no checkpoint of TensorFlow's: it does not end as one does; it is another file, or was cut "
                f"off"
            )
        declared: dict[str, tuple[tuple[int, ...], int]] = {}
        for key, value, block in read_table(path):
            where = f"{path}, block at byte {block}"
            if key == b"":
                with _told(where):
                    declared = {name: (shape, dtype) for name, shape, dtype in messages.saved_tensors(value)}
                continue
            with _told(where):
                name, extents, values = messages.saved_slice(value)
            where += f", variable {name}"
            if name not in declared:
                raise DataError(f"{where}: the file's list of shapes does not have it")
            shape, dtype = declared[name]
            if dtype == messages.STRING:
                continue
            _require_dtype(dtype, where)
            with _told(where):
                numbers = _as_float32(messages.tensor_values(values, dtype), dtype)
            _fill(arrays, filled, name, shape, extents, numbers, where)
    for name, array in arrays.items():
        if filled[name] != array.size:
            raise DataError(
                f"{paths[0]}, variable {name}: its parts have {filled[name]} of {array.size} numbers; a file of "
                f"several is missing"
            )
        yield name, array


def _fill(
    arrays: dict,
    filled: dict,
    name: str,
    shape: tuple[int, ...],
    extents: list[Extent],
    numbers: np.ndarray,
    where: str,
) -> None:
    array = arrays.setdefault(name, np.empty(shape, numbers.dtype))
    target = array[_region(extents, shape, where)] if extents else array
    if numbers.size == 1 and target.size > 1:  # a constant may be written once for all
        numbers = np.full(target.size, numbers[0])
    if numbers.size != target.size:
        raise DataError(f"{where}: {numbers.size} numbers where {target.size} belong")
    target[...] = numbers.reshape(target.shape)
    filled[name] = filled.get(name, 0) + target.size


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Puts the place before what is wrong there."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
