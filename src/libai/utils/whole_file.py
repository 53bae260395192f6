"""Files that are written beside their place and renamed: whatever happens, a reader finds the old one or the new one,
whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from oneflow.engine.checkpoint.writing import sync_folder


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Replaces the file at ``path`` by one with this text, once the disk has it."""
    with whole_file(path) as file:
        file.write(text.encode("utf-8"))


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that stands at ``path`` once the block is left and the disk has it; nothing is there if the block
    fails."""
    file = BesideFile(path)
    try:
        yield file.file
    except BaseException:
        file.discard()
        raise
    file.replace()


class BesideFile:
    """A file beside its place: ``replace`` puts it there, ``discard`` removes it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.target = Path(path)
        handle, self._name = tempfile.mkstemp(prefix=f".{self.target.name}.", suffix=".tmp", dir=self.target.parent)
        self.file: IO[bytes] = open(handle, "wb")

    def replace(self) -> None:
        """Puts the file in its place, once the disk has it."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            os.fchmod(self.file.fileno(), 0o644)
            self.file.close()
            os.replace(self._name, self.target)
        except BaseException:
            self.discard()
            raise
        sync_folder(self.target.parent)

    def discard(self) -> None:
        """Removes the file, unless it is in its place already."""
        self.file.close()
        if os.path.exists(self._name):
            os.unlink(self._name)
