"""Files by address: a local path, or anything fsspec opens (``memory://``, ``s3://``, ``https://`` ...).

Reading is by position (``pread``), so that many threads can share a source. Files are not mapped: one that is cut short
while it is read is an error with its name, where a map would be a signal; and its pages do not count as ours. Writing
happens beside the target under another name; the target appears by a rename when all of it is there.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import itertools
import os
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, Protocol, Self

from oneflow.engine.core.errors import DataError

Address = str | os.PathLike[str]

_BUFFER = 1 << 17
_INFLATE = 1 << 20
_FRESH = itertools.count()


class Stream(Protocol):
    """Bytes in turn, and ``with`` closes it."""

    def read(self, size: int = -1, /) -> bytes: ...

    def seek(self, offset: int, /) -> int: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...


class Source(Protocol):
    """The bytes of one file. ``stamp`` changes when the file does."""

    path: str
    stamp: int

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``offset``, fewer only at the end; from any thread."""
        ...

    def stream(self) -> Stream:
        """The file from its beginning, for reading once through; seekable."""
        ...

    def close(self) -> None: ...


def is_remote(path: Address) -> bool:
    """Whether an address is fsspec's to open. ``file://`` counts as remote only in name: it is read where it lies."""
    return "://" in os.fspath(path) and not os.fspath(path).startswith("file://")


def local_path(path: Address) -> str:
    """A local address as a plain path."""
    return os.fspath(path).removeprefix("file://")


def open_source(path: Address) -> Source:
    """Opens a file for reading. One that is missing or cannot be read is a ``DataError`` that names it."""
    return RemoteSource(os.fspath(path)) if is_remote(path) else LocalSource(local_path(path))


class LocalSource:
    """A file of this machine. It is read, not mapped: a file that is cut while it is read is an error and no signal,
    and what was read does not count as memory of the process."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: int | None = None
        with _opening(path):
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        status = os.fstat(self._file)
        self.size, self.stamp = status.st_size, status.st_mtime_ns & (1 << 64) - 1
        if not os.path.isfile(path):
            self.close()
            raise DataError(f"{path}: the file cannot be opened: it is a directory or a device")

    def read_at(self, offset: int, count: int) -> bytes:
        if self._file is None:
            raise DataError(f"{self.path} was closed")
        try:
            return os.pread(self._file, count, offset)
        except OSError as error:
            raise DataError(f"{self.path}: the file cannot be read: {error.strerror}") from None

    def stream(self) -> Stream:
        with _opening(self.path):
            return open(self.path, "rb", buffering=_BUFFER)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def __del__(self) -> None:
        self.close()


@contextmanager
def _opening(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: the file cannot be opened: {error.strerror}") from None


class RemoteSource:
    """A file behind fsspec, read by ranges."""

    def __init__(self, path: str) -> None:
        self.path = path
        with remote_errors(path):
            self._system, self._inner = file_system(path)
            info = self._system.info(self._inner)
        if info.get("type") == "directory":
            raise DataError(f"{path}: the file cannot be opened: it is a directory")
        if info.get("size") is None:
            raise DataError(f"{path}: the file system does not tell the file's size; copy the file to a local disk")
        self.size, self.stamp = int(info["size"]), _stamp(info)

    def read_at(self, offset: int, count: int) -> bytes:
        end = min(offset + count, self.size)
        if end <= offset:
            return b""
        with remote_errors(self.path):
            return bytes(self._system.cat_file(self._inner, start=offset, end=end))

    def stream(self) -> Stream:
        with remote_errors(self.path):
            return self._system.open(self._inner, "rb")

    def close(self) -> None:
        pass


class GzipSource:
    """What is inside a gzip file. Reading by position unpacks it once into a nameless temporary file.

    What can be unpacked of a broken file can be read by position; ``damage`` then says what is wrong.
    """

    def __init__(self, inner: Source) -> None:
        self.path, self.stamp = inner.path, inner.stamp
        self.damage: DataError | None = None
        self._inner = inner
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None

    @property
    def size(self) -> int:
        return os.fstat(self._unpacked()).st_size

    def read_at(self, offset: int, count: int) -> bytes:
        return os.pread(self._unpacked(), count, offset)

    def stream(self) -> Stream:
        return _Inflated(self._inner.stream())

    def close(self) -> None:
        self._inner.close()
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def __del__(self) -> None:
        self.close()

    def _unpacked(self) -> int:
        with self._lock:
            if self._file is None:
                self._file = self._unpack()
            return self._file.fileno()

    def _unpack(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()
        try:
            with _Inflated(self._inner.stream()) as packed:
                try:
                    while piece := packed.read1(_INFLATE):
                        file.write(piece)
                except DataError as error:
                    self.damage = error
            file.flush()
        except BaseException:
            file.close()
            raise
        return file


class _Inflated(gzip.GzipFile):
    """A gzip stream that owns the file under it. Errors say what is wrong; the caller says where."""

    def __init__(self, packed: Stream) -> None:
        super().__init__(fileobj=packed, mode="rb")
        self._packed = packed

    def read(self, size: int | None = -1) -> bytes:
        with _inflating():
            return super().read(size)

    def read1(self, size: int = -1) -> bytes:
        """What comes next, up to ``size``: all that lies before damage can be had."""
        with _inflating():
            return super().read1(size)

    def close(self) -> None:
        super().close()
        self._packed.close()


@contextmanager
def _inflating() -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"broken gzip file: {error}") from None


# ------------------------------------------------------------------ writing


@contextmanager
def written_beside(path: Address) -> Iterator[BinaryIO]:
    """A file to write that appears at ``path``, complete, when the body ends well; otherwise nothing changes there.

    A process that is killed leaves at most a file ``<path>.<unique>.tmp``.
    """
    target = os.fspath(path)
    beside = f"{target}.{os.getpid()}-{next(_FRESH)}.tmp"
    writing = _remote_beside if is_remote(target) else _local_beside
    with writing(local_path(target), local_path(beside)) as file:
        yield file


@contextmanager
def _local_beside(target: str, beside: str) -> Iterator[BinaryIO]:
    try:
        file = open(beside, "wb", buffering=_BUFFER)
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException as error:
        _unlink(beside)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise DataError(f"{target} cannot be written: {error.strerror}") from None
        raise


@contextmanager
def _remote_beside(target: str, beside: str) -> Iterator[BinaryIO]:
    with remote_errors(target):
        system, inner = file_system(target)
        _, inner_beside = file_system(beside)
        file = system.open(inner_beside, "wb")
    try:
        with file:
            yield file
        system.mv(inner_beside, inner)
    except BaseException:
        if system.exists(inner_beside):
            system.rm(inner_beside)
        raise


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


# ------------------------------------------------------------------ folders


def join(folder: Address, name: str) -> str:
    """The address of a file in a folder."""
    return f"{os.fspath(folder).rstrip('/')}/{name}" if is_remote(folder) else os.path.join(local_path(folder), name)


def base_name(path: Address) -> str:
    """The last part of an address."""
    return os.fspath(path).rstrip("/").rsplit("/", 1)[-1] if is_remote(path) else os.path.basename(local_path(path))


def list_files(folder: Address) -> list[str]:
    """The names of the files directly in a folder, sorted. A missing folder is a ``DataError``."""
    if is_remote(folder):
        with remote_errors(os.fspath(folder)):
            system, inner = file_system(os.fspath(folder))
            return sorted(base_name(info["name"]) for info in system.ls(inner, detail=True) if info["type"] == "file")
    try:
        with os.scandir(local_path(folder)) as entries:
            return sorted(entry.name for entry in entries if entry.is_file())
    except OSError as error:
        raise DataError(f"{os.fspath(folder)}: the folder cannot be read: {error.strerror}") from None


def make_folder(folder: Address) -> None:
    """Makes a folder and those above it; one that is there is left alone."""
    if is_remote(folder):
        with remote_errors(os.fspath(folder)):
            system, inner = file_system(os.fspath(folder))
            system.makedirs(inner, exist_ok=True)
        return
    try:
        os.makedirs(local_path(folder), exist_ok=True)
    except OSError as error:
        raise DataError(f"{os.fspath(folder)}: the folder cannot be made: {error.strerror}") from None


def is_folder(path: Address) -> bool:
    if not is_remote(path):
        return os.path.isdir(local_path(path))
    with remote_errors(os.fspath(path)):
        system, inner = file_system(os.fspath(path))
        return bool(system.isdir(inner))


# ------------------------------------------------------------------ fsspec


def file_system(address: str) -> tuple[Any, str]:
    """fsspec's file system of an address and the path within it."""
    import fsspec  # on first use: most programs read local files only

    return fsspec.core.url_to_fs(address)


@contextmanager
def remote_errors(path: str) -> Iterator[None]:
    """Turns what a file system raises into a ``DataError`` with the address."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: the file cannot be opened: No such file") from None
    except ImportError as error:
        raise DataError(f"{path}: this kind of address needs another package: {error}") from None
    except Exception as error:  # every file system has its own
        raise DataError(f"{path}: the file cannot be read: {type(error).__name__}: {error}") from None


def _stamp(info: dict[str, Any]) -> int:
    """What a file system tells about a file (times, tags), as a number."""
    text = repr(sorted((key, str(value)) for key, value in info.items()))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
