"""Tokens on disk, ``<prefix>.bin`` and ``<prefix>.idx``: Megatron's three kinds, read and written byte for byte."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from libai.utils.whole_file import BesideFile, whole_file
from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.formats.indexed import DTYPES, mapped, read_index, write_index
from oneflow.utils.data import Dataset

__all__ = [
    "IndexedCachedDataset",
    "IndexedDataset",
    "IndexedDatasetBuilder",
    "MMapIndexedDataset",
    "MMapIndexedDatasetBuilder",
    "code",
    "create_doc_idx",
    "data_file_path",
    "dataset_exists",
    "get_available_dataset_impl",
    "get_indexed_dataset",
    "index_file_path",
    "infer_dataset_impl",
    "make_builder",
    "make_dataset",
    "read_longs",
    "write_longs",
]

dtypes = {code: np.dtype(name) for code, name in DTYPES.items()}
_LAZY_MAGIC, _MMAP_MAGIC = b"TNTIDX\x00\x00", b"MMIDIDX\x00\x00"
_SMALL_VOCABULARY = 65500  # below it tokens are uint16


def get_available_dataset_impl() -> list[str]:
    """The kinds of files that there are."""
    return ["lazy", "cached", "mmap"]


def infer_dataset_impl(path: str) -> str | None:
    """The kind of the files of a prefix, by how the index begins: ``"mmap"``, ``"cached"``, or None where there is no
    index of either."""
    try:
        with open(index_file_path(path), "rb") as file:
            begin = file.read(len(_MMAP_MAGIC))
    except OSError:
        return None
    return "mmap" if begin == _MMAP_MAGIC else "cached" if begin.startswith(_LAZY_MAGIC) else None


def make_builder(
    out_file: str, impl: str, vocab_size: int | None = None
) -> IndexedDatasetBuilder | MMapIndexedDatasetBuilder:
    """What writes files of a kind. Tokens of ``"mmap"`` are uint16 if they fit, else int32."""
    if _known(impl) == "mmap":
        fits = vocab_size is not None and vocab_size < _SMALL_VOCABULARY
        return MMapIndexedDatasetBuilder(out_file, dtype=np.uint16 if fits else np.int32)
    return IndexedDatasetBuilder(out_file)


def make_dataset(path: str, impl: str, skip_warmup: bool = False) -> IndexedDataset | MMapIndexedDataset:
    """The files of a prefix; ``"infer"`` finds their kind out."""
    for file in (index_file_path(path), data_file_path(path)):
        if not os.path.exists(file):
            raise DataError(
                f"there is no {file}; a data prefix is the path of two files without their .bin and .idx, which "
                f"tools/preprocess_data.py makes"
            )
    found = infer_dataset_impl(path)
    if found is None:
        raise DataError(
            f"{index_file_path(path)} is no index of tokens: it begins with neither {_MMAP_MAGIC!r} nor {_LAZY_MAGIC!r}"
        )
    asked = found if impl == "infer" else _known(impl)
    if (asked == "mmap") != (found == "mmap"):
        raise DataError(
            f"{path} has files of the kind {'mmap' if found == 'mmap' else 'lazy or cached'}, not {asked}; give that "
            f"as data_impl, or 'infer'"
        )
    if asked == "mmap":
        return MMapIndexedDataset(path, skip_warmup)
    return IndexedDataset(path) if asked == "lazy" else IndexedCachedDataset(path)


def get_indexed_dataset(data_prefix: str, data_impl: str, skip_warmup: bool) -> IndexedDataset | MMapIndexedDataset:
    """The files of a prefix whose document index fits their sequences."""
    dataset = make_dataset(data_prefix, data_impl, skip_warmup)
    documents = dataset.get_doc_idx()
    if not len(documents) or documents[0] != 0 or documents[-1] != len(dataset) or (np.diff(documents) < 0).any():
        raise DataError(
            f"{index_file_path(data_prefix)}: the document index runs from 0 to the number of sequences, "
            f"{len(dataset)}; make the files again"
        )
    return dataset


def dataset_exists(path: str, impl: str) -> bool:
    """Whether there are both files."""
    _known(impl, also=("infer",))
    return os.path.exists(index_file_path(path)) and os.path.exists(data_file_path(path))


def read_longs(f: IO[bytes], n: int) -> np.ndarray:
    """The next ``n`` 64-bit integers of a file."""
    content = f.read(8 * n)
    if len(content) != 8 * n:
        raise DataError(
            f"{getattr(f, 'name', 'the file')} ends after {len(content) // 8} of {n} numbers; it was cut short"
        )
    return np.frombuffer(content, "<i8")


def write_longs(f: IO[bytes], a: Sequence[int] | np.ndarray) -> None:
    """Writes 64-bit integers."""
    f.write(np.asarray(a, "<i8").tobytes())


def code(dtype: Any) -> int:
    """The number by which an index names a dtype."""
    for number, known in dtypes.items():
        if known == np.dtype(dtype):
            return number
    raise ArgumentError(f"tokens are {', '.join(str(known) for known in dtypes.values())}, got {np.dtype(dtype)}")


def index_file_path(prefix_path: str) -> str:
    """The index of a prefix."""
    return prefix_path + ".idx"


def data_file_path(prefix_path: str) -> str:
    """The tokens of a prefix."""
    return prefix_path + ".bin"


def create_doc_idx(sizes: Sequence[int] | np.ndarray) -> list[int]:
    """The document index of sequences among which an empty one ends a document."""
    return [0, *(int(i) + 1 for i in np.flatnonzero(np.asarray(sizes) == 0))]


class _Documents(Dataset):
    """What both kinds share: sequences by number or slice, and a document index that can be narrowed to a part of the
    documents."""

    _path: str
    _doc_idx: np.ndarray

    def __getitem__(self, idx: Any) -> Any:
        """The sequence of a number, or the list of those of a slice without steps."""
        if isinstance(idx, slice):
            start, stop, step = idx.indices(len(self))
            if step != 1:
                raise ArgumentError(f"a slice of sequences is contiguous, got the step {step}")
            return [self.get(i) for i in range(start, stop)]
        return self.get(idx)

    def __len__(self) -> int:
        raise NotImplementedError

    def get(self, idx: int, offset: int = 0, length: int | None = None) -> np.ndarray:
        """``length`` tokens of a sequence from ``offset`` on, or all that are left."""
        raise NotImplementedError

    def get_doc_idx(self) -> np.ndarray:
        """Where documents begin, as numbers of sequences, and where the last one ends."""
        return self._doc_idx

    def set_doc_idx(self, doc_idx_: np.ndarray) -> None:
        """Narrows the document index, to a part of it as it was."""
        self._doc_idx = doc_idx_

    @property
    def doc_idx(self) -> np.ndarray:
        """As ``get_doc_idx`` gives it."""
        return self._doc_idx

    @staticmethod
    def exists(path: str) -> bool:
        """Whether there are both files."""
        return os.path.exists(index_file_path(path)) and os.path.exists(data_file_path(path))

    def _number(self, idx: int, count: int) -> int:
        if not -count <= idx < count:
            raise IndexError(f"{self._path} has {count} sequences, there is no number {idx}")
        return int(idx) % count


class MMapIndexedDataset(_Documents):
    """Sequences of the memory-mapped kind. Without ``skip_warmup`` the files are read once, so that the system has them
    in memory."""

    def __init__(self, path: str, skip_warmup: bool = False) -> None:
        self._path = path
        self._open()
        if not skip_warmup:
            _read_once(index_file_path(path), data_file_path(path))

    def _open(self) -> None:
        self._dtype, self._sizes, offsets, self._doc_idx = read_index(index_file_path(self._path))
        self._tokens = np.asarray(mapped(data_file_path(self._path), self._dtype))
        self._starts = offsets // self._dtype.itemsize
        ends = self._starts + self._sizes
        if len(ends) and (
            self._sizes.min() < 0
            or self._starts.min() < 0
            or ends.max() > len(self._tokens)
            or (offsets % self._dtype.itemsize).any()
        ):
            raise DataError(
                f"{data_file_path(self._path)} has {len(self._tokens)} tokens, its index speaks of {ends.max()}; the "
                f"two files do not belong together, or one was cut short"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self._path, "doc_idx": np.array(self._doc_idx)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["path"]
        self._open()
        self._doc_idx = state["doc_idx"]

    def __len__(self) -> int:
        return len(self._sizes)

    def get(self, idx: int, offset: int = 0, length: int | None = None) -> np.ndarray:
        """``length`` tokens of a sequence from ``offset`` on, or all that are left."""
        number = self._number(idx, len(self))
        begin, end = int(self._starts[number]), int(self._starts[number] + self._sizes[number])
        return self._tokens[begin + offset : end if length is None else begin + offset + length]

    @property
    def sizes(self) -> np.ndarray:
        """The number of tokens of each sequence."""
        return self._sizes

    @property
    def supports_prefetch(self) -> bool:
        """Nothing has to be asked for ahead."""
        return False


class IndexedDataset(_Documents):
    """Sequences of the lazy kind, read from the file one by one."""

    _HDR_MAGIC = _LAZY_MAGIC

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None
        self.read_index(path)

    def read_index(self, path: str) -> None:
        """Reads the index of a prefix."""
        name = index_file_path(path)
        try:
            with open(name, "rb") as file:
                if file.read(len(_LAZY_MAGIC)) != _LAZY_MAGIC:
                    raise DataError(f"{name} is not an index of the lazy kind: it does not begin with {_LAZY_MAGIC!r}")
                version, number, self.element_size, self._len, shapes, documents = (
                    int(value) for value in read_longs(file, 6)
                )
                if (
                    version != 1
                    or number not in dtypes
                    or dtypes[number].itemsize != self.element_size
                    or min(self._len, shapes, documents) < 0
                ):
                    raise DataError(
                        f"{name} has version {version}, dtype code {number} and {self.element_size} bytes a token; "
                        f"version 1 and the codes {sorted(dtypes)} can be read"
                    )
                self.dtype = dtypes[number]
                self.dim_offsets, self.data_offsets = read_longs(file, self._len + 1), read_longs(file, self._len + 1)
                self.sizes, self._doc_idx = read_longs(file, shapes), read_longs(file, documents)
        except OSError as error:
            raise DataError(f"{name} cannot be read: {error.strerror}") from None
        self._check_data(data_file_path(path))

    def _check_data(self, name: str) -> None:
        if not os.path.exists(name):
            raise DataError(f"{name} cannot be read: there is no such file")
        present, expected = os.path.getsize(name) // self.element_size, int(self.data_offsets[-1])
        if present < expected or (np.diff(self.data_offsets) < 0).any() or int(self.dim_offsets[-1]) != len(self.sizes):
            raise DataError(
                f"{name} has {present} tokens, its index speaks of {expected}; the two files do not belong together, "
                f"or one was cut short"
            )

    def read_data(self, path: str) -> None:
        """Opens the tokens of a prefix."""
        self._handle = os.open(data_file_path(path), os.O_RDONLY)
        weakref.finalize(self, os.close, self._handle)

    def check_index(self, i: int) -> None:
        """Refuses a number that no sequence has."""
        self._number(i, self._len)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handle": None}

    def __len__(self) -> int:
        return self._len

    def get(self, idx: int, offset: int = 0, length: int | None = None) -> np.ndarray:
        """``length`` tokens of a sequence from ``offset`` on, or all that are left; a sequence that is no row has its
        shape if it is read whole."""
        number = self._number(idx, self._len)
        shape = self.sizes[self.dim_offsets[number] : self.dim_offsets[number + 1]]
        begin, end = int(self.data_offsets[number]) + offset, int(self.data_offsets[number + 1])
        if length is not None:
            end = min(end, begin + length)
        found = self._read(begin, end)
        return found.reshape(shape) if offset == 0 and end == self.data_offsets[number + 1] else found

    def _read(self, begin: int, end: int) -> np.ndarray:
        if self._handle is None:
            self.read_data(self._path)
        assert self._handle is not None
        # pread has a place of its own, so processes forked from this one do not move it for each other.
        return np.frombuffer(
            os.pread(self._handle, (end - begin) * self.element_size, begin * self.element_size), self.dtype
        )

    def num_tokens(self, index: int) -> int:
        """The number of tokens of a sequence."""
        return self.size(index)

    def size(self, index: int) -> int:
        """The number of tokens of a sequence."""
        number = self._number(index, self._len)
        return int(self.data_offsets[number + 1] - self.data_offsets[number])

    @property
    def supports_prefetch(self) -> bool:
        """Nothing has to be asked for ahead."""
        return False


class IndexedCachedDataset(IndexedDataset):
    """Sequences of the lazy kind; those that ``prefetch`` has read stay in memory."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._kept: dict[int, np.ndarray] = {}

    @property
    def supports_prefetch(self) -> bool:
        """Sequences may be asked for ahead."""
        return True

    def prefetch(self, indices: Sequence[int]) -> None:
        """Reads these sequences into memory, in place of those that were there."""
        wanted = sorted({self._number(i, self._len) for i in indices})
        self._kept = {i: self._kept[i] if i in self._kept else super(IndexedCachedDataset, self).get(i) for i in wanted}

    def get(self, idx: int, offset: int = 0, length: int | None = None) -> np.ndarray:
        """As of the lazy kind."""
        kept = self._kept.get(self._number(idx, self._len))
        if kept is None or (kept.ndim != 1 and (offset or length is not None)):
            return super().get(idx, offset, length)
        return kept[offset : None if length is None else offset + length]


class _Builder:
    """Tokens on their way into a file beside ``out_file``; ``finalize`` puts it and the index in their places."""

    def __init__(self, out_file: str, dtype: Any) -> None:
        code(dtype)
        self.dtype = np.dtype(dtype)
        self._beside = BesideFile(out_file)
        self._forget = weakref.finalize(self, self._beside.discard)
        self.doc_idx = [0]

    def _write(self, tokens: Any) -> np.ndarray:
        given = np.asarray(tokens)
        cast = given.astype(self.dtype)
        if not np.array_equal(cast, given):
            raise ArgumentError(
                f"the tokens of {self._beside.target} are {self.dtype}, which cannot hold all of {int(given.min())} to "
                f"{int(given.max())}; make_builder(vocab_size=) chooses a dtype that can"
            )
        self._beside.file.write(cast.astype(self.dtype.newbyteorder("<")).tobytes())
        return cast

    def _copy(self, prefix: str) -> None:
        with open(data_file_path(prefix), "rb") as file:
            while content := file.read(1 << 24):
                self._beside.file.write(content)

    def _require_same(self, prefix: str, dtype: np.dtype[Any]) -> None:
        if dtype != self.dtype:
            raise ArgumentError(
                f"files that are merged have tokens of one dtype: {prefix} has {dtype}, {self._beside.target} "
                f"{self.dtype}"
            )

    def _place(self, index_file: str) -> None:
        # An old index would speak of other tokens until the new one is there.
        if os.path.exists(index_file):
            os.unlink(index_file)
        self._forget.detach()
        self._beside.replace()


class IndexedDatasetBuilder(_Builder):
    """Writes files of the lazy kind, which is that of the cached one too."""

    def __init__(self, out_file: str, dtype: Any = np.int32) -> None:
        super().__init__(out_file, dtype)
        self.element_size = self.dtype.itemsize
        self.data_offsets, self.dim_offsets, self.sizes = [0], [0], list[int]()

    def add_item(self, tensor: Any) -> None:
        """Adds a sequence."""
        written = self._write(tensor)
        self.data_offsets.append(self.data_offsets[-1] + written.size)
        self.sizes.extend(written.shape)
        self.dim_offsets.append(self.dim_offsets[-1] + written.ndim)

    def end_document(self) -> None:
        """What was added since the last call is a document."""
        self.doc_idx.append(len(self.data_offsets) - 1)

    def merge_file_(self, another_file: str) -> None:
        """Adds the sequences and documents of other files, given by their prefix."""
        other = IndexedDataset(another_file)
        self._require_same(another_file, other.dtype)
        before = len(self.data_offsets) - 1
        self.data_offsets += (other.data_offsets[1:] + self.data_offsets[-1]).tolist()
        self.dim_offsets += (other.dim_offsets[1:] + self.dim_offsets[-1]).tolist()
        self.sizes += other.sizes.tolist()
        self.doc_idx += (other.doc_idx[1:] + before).tolist()
        self._copy(another_file)

    def finalize(self, index_file: str) -> None:
        """Writes the index; then both files are there."""
        self._place(index_file)
        with whole_file(index_file) as file:
            file.write(_LAZY_MAGIC)
            write_longs(
                file,
                [
                    1,
                    code(self.dtype),
                    self.element_size,
                    len(self.data_offsets) - 1,
                    len(self.sizes),
                    len(self.doc_idx),
                ],
            )
            for part in (self.dim_offsets, self.data_offsets, self.sizes, self.doc_idx):
                write_longs(file, part)


class MMapIndexedDatasetBuilder(_Builder):
    """Writes files of the memory-mapped kind."""

    def __init__(self, out_file: str, dtype: Any = np.int64) -> None:
        super().__init__(out_file, dtype)
        self._sizes: list[int] = []

    def add_item(self, tensor: Any) -> None:
        """Adds a sequence."""
        self._sizes.append(self._write(tensor).size)

    def end_document(self) -> None:
        """What was added since the last call is a document."""
        self.doc_idx.append(len(self._sizes))

    def merge_file_(self, another_file: str) -> None:
        """Adds the sequences and documents of other files, given by their prefix."""
        other = MMapIndexedDataset(another_file, skip_warmup=True)
        self._require_same(another_file, other._dtype)
        self.doc_idx += (other.doc_idx[1:] + len(self._sizes)).tolist()
        self._sizes += other.sizes.tolist()
        self._copy(another_file)

    def finalize(self, index_file: str) -> None:
        """Writes the index; then both files are there."""
        self._place(index_file)
        with whole_file(index_file) as file:
            write_index(file, self.dtype, self._sizes, self.doc_idx)


def _known(impl: str, also: tuple[str, ...] = ()) -> str:
    if impl not in (*get_available_dataset_impl(), *also):
        raise ArgumentError(
            f"data_impl is one of {', '.join(get_available_dataset_impl())}, or 'infer' for files that are there; got "
            f"{impl!r}"
        )
    return impl


def _read_once(*paths: str) -> None:
    for path in paths:
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
