"""Folders that are written beside their place and renamed: whatever happens, the place is as it was, or whole."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = -100  # AT_FDCWD: paths are relative to the working directory
_EXCHANGE = 2  # RENAME_EXCHANGE


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A new folder beside the target, on the same file system; gone if it was not renamed. What killed writers of this
    target left is removed.

    A writer holds a lock on its folder, which ends with the process: a folder that nobody has locked is one that nobody
    will finish.
    """
    _remove_abandoned(target)
    folder, handle = _new_folder(target)
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder(target: Path) -> tuple[Path, int]:
    """A folder and the handle that locks it. Between the two another writer may take it for abandoned; then there is a
    next one."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        _locked(handle, waits=True)
        if folder.exists():
            return folder, handle
        os.close(handle)


def _remove_abandoned(target: Path) -> None:
    for path in target.parent.iterdir():
        if (
            not (path.name.startswith(f".{target.name}.") and path.name.endswith(".tmp"))
            or path.is_symlink()
            or not path.is_dir()
        ):
            continue
        if "." in path.name.removeprefix(f".{target.name}.").removesuffix(".tmp"):
            continue  # of a target whose name begins like this one's
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:  # renamed or removed meanwhile, or another user's
            continue
        try:
            if _locked(handle):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


def _locked(handle: int, waits: bool = False) -> bool:
    """Takes the lock of an open folder; False if another process has it and is not waited for, or the file system knows
    no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def write_file(path: Path, data: bytes) -> None:
    """Writes a new file and waits until the disk has it."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_tree(folder: Path) -> None:
    """Waits until the disk has everything in the folder."""
    if not sync_file_system(folder):
        for path in folder.rglob("*"):
            sync_folder(path)
    sync_folder(folder)


def sync_file_system(folder: Path) -> bool:
    """Waits until the disk has all that was written beside the folder and in it: for hundreds of files far quicker than
    one after the other. False where the system cannot."""
    sync = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if sync is None:
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        if sync(handle) == 0:
            return True
        number = ctypes.get_errno()
    finally:
        os.close(handle)
    if number == errno.ENOSYS:
        return False
    raise OSError(number, os.strerror(number), str(folder))


def sync_folder(folder: Path) -> None:
    """Waits until the disk has the folder's entries, or what is in a file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_in_place(new: Path, target: Path) -> None:
    """Gives ``new`` the name ``target``. An old folder of that name has the name ``new`` afterwards, or is gone.

    Old and new change places in one step where the system can do that. Elsewhere the old one is put aside first; a
    process that is killed right then leaves it whole under a hidden name beside the target.
    """
    try:
        os.rename(new, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if not exchange(new, target):
            _put_aside_and_rename(new, target)


def _put_aside_and_rename(new: Path, target: Path) -> None:
    aside = new.with_suffix(".old")
    os.rename(target, aside)
    try:
        os.rename(new, target)
    except BaseException:
        os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def exchange(one: Path, other: Path) -> bool:
    """Lets two folders change names in one step; False where the system or its file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(other))
