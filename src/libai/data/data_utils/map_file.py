"""Index maps on disk: made once by whoever comes first, and made anew when they are not those of the data that is
read."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from libai.utils.whole_file import whole_file

_log = logging.getLogger(__name__)
_DIGEST = 32


class IndexMap:
    """``rows`` of an index map. It is pickled as the name of its file, if it has one."""

    def __init__(self, rows: np.ndarray, path: str | None = None) -> None:
        self.rows, self._path = rows, path

    def __reduce__(self) -> Any:
        return (_opened, (self._path,)) if self._path is not None else (IndexMap, (self.rows,))


def cached_map(path: str, fingerprint: bytes, build: Callable[[], np.ndarray]) -> IndexMap:
    """The map in the ``.npy`` file at ``path`` if its fingerprint is this one; else it is built and written there.

    The fingerprint stands behind the array, where readers of such files do not look. Processes that come at once wait
    for the first one; where files cannot be locked they all build, and the last file stays. In a folder that cannot be
    written to the map stays in memory.
    """
    found = _read(path, fingerprint)
    if found is not None:
        return found
    try:
        with _alone(os.path.dirname(os.path.abspath(path))):
            return _read(path, fingerprint) or _written(path, fingerprint, build())
    except OSError as error:
        _log.warning(
            "the index map %s cannot be kept (%s); it is built in every process, each time", path, error.strerror
        )
        return IndexMap(build())


def fingerprint(*parts: Any) -> bytes:
    """A digest of arrays and plain values."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else repr(part).encode())
    return digest.digest()


def _written(path: str, mark: bytes, rows: np.ndarray) -> IndexMap:
    with whole_file(path) as file:
        np.save(file, rows)
        file.write(mark)
    return _opened(path)


def _read(path: str, mark: bytes) -> IndexMap | None:
    try:
        with open(path, "rb") as file:
            file.seek(-_DIGEST, os.SEEK_END)
            return _opened(path) if file.read() == mark else None
    except OSError:
        return None


def _opened(path: str) -> IndexMap:
    return IndexMap(np.asarray(np.load(path, mmap_mode="r")), path)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Keeps others out while a map of the folder is built. The lock ends with the process."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: the renaming is safe without them
            pass
        yield
    finally:
        os.close(handle)
