"""Files that are written beside their place and renamed: whatever happens, a reader finds the old one or the new one, whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from oneflow.checkpoint.writing import sync_folder


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Replaces the file at ``path`` by one with this text, once the disk has it."""
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    sync_folder(target.parent)
