"""Compiled kernels on disk, by digest. What is read from there is run, so nothing is taken that this user has not
written.

Every entry carries a MAC under a key that only this user can read, over its digest and all of its bytes: one that is
broken, foreign or renamed is as good as none. Entries are written beside and renamed; who compiles one holds a lock on
it; the least recently used go when all of them grow beyond a bound.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BOUND = 256 * 2**20
"""Bytes that all entries may have."""
_MAC = 32
_KEY = 32


class StoreError(Exception):
    """The folder cannot be trusted, or cannot be written."""


def store_folder() -> Path:
    """Where kernels are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "oneflow-torch" / "kernels"


class KernelStore:
    """The kernels of one user. The folder is made at first use, and must be this user's own."""

    def __init__(self, folder: Path | None = None, bound: int = BOUND) -> None:
        self.folder = store_folder() if folder is None else folder
        self._bound = bound
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.lstat(self.folder)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                raise StoreError(f"{str(self.folder)!r} is not a folder of this user")
            if stat.S_IMODE(found.st_mode) != 0o700:
                self.folder.chmod(0o700)
            self._key = self._read_key()
        except OSError as error:
            raise StoreError(f"kernels cannot be kept in {str(self.folder)!r}: {error}") from error

    # -------------------------------------------------------------- entries

    def get(self, digest: str) -> bytes | None:
        """What was kept under a digest; None if there is nothing, or something that this user has not written so."""
        path = self._path(digest)
        try:
            written = _read_own(path)
        except OSError:
            return None
        if written is None or not hmac.compare_digest(written[:_MAC], self._mac(digest, written[_MAC:])):
            return None
        with _unless_gone():
            os.utime(path)  # it was used now
        return written[_MAC:]

    def put(self, digest: str, payload: bytes) -> None:
        """Keeps something under a digest, and lets go of what was not used for longest."""
        self._write(self._path(digest), self._mac(digest, payload) + payload)
        self._evict()

    @contextmanager
    def locked(self, digest: str) -> Iterator[None]:
        """Waits until no other process holds this digest, and holds it. There are 256 locks, so a few digests share
        one."""
        with open(self.folder / f"lock-{digest[:2]}", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def as_file(self, payload: bytes) -> Iterator[Path]:
        """A file of this user alone, for as long as it takes to load it."""
        number, name = tempfile.mkstemp(dir=self.folder, suffix=".so")
        try:
            with open(number, "wb") as file:
                file.write(payload)
            yield Path(name)
        finally:
            os.unlink(name)

    # -------------------------------------------------------------- files

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}.kernel"

    def _mac(self, digest: str, payload: bytes) -> bytes:
        return hmac.digest(self._key, digest.encode() + payload, "sha256")

    def _read_key(self) -> bytes:
        """The key of this user. One that others could have read or written is replaced, and with it all entries lose
        their worth."""
        path = self.folder / "key"
        with open(self.folder / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                found = _read_own(path, is_secret=True)
            except OSError:
                found = None
            if found is None or len(found) != _KEY:
                found = secrets.token_bytes(_KEY)
                self._write(path, found)
        return found

    def _write(self, path: Path, content: bytes) -> None:
        number, name = tempfile.mkstemp(dir=self.folder)  # of mode 600
        with open(number, "wb") as file:
            file.write(content)
        os.replace(name, path)

    def _evict(self) -> None:
        entries = []
        for path in self.folder.glob("*.kernel"):
            with _unless_gone():
                found = path.stat()
                entries.append((found.st_mtime_ns, found.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries)[:-1]:  # the last is the one just written
            if total <= self._bound:
                return
            with _unless_gone():
                path.unlink()
            total -= size


@contextmanager
def _unless_gone() -> Iterator[None]:
    """Another process may have let go of a file meanwhile."""
    try:
        yield
    except FileNotFoundError:
        pass


def _read_own(path: Path, is_secret: bool = False) -> bytes | None:
    """A file of this user, which no other can write; one that is secret no other can read either."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        others = 0o077 if is_secret else 0o022
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & others:
            return None
        return file.read()
