"""Fetching a file."""

from __future__ import annotations

import os

from libai.utils.file_utils import download_file


def download(url: str, dir: str, *, filename: str | None = None, progress: bool = True) -> str:
    """Brings a file into a folder, unless it is there, and returns its path. Its name is that of the address, or
    ``filename``. ``progress`` shows a bar on a terminal."""
    path = os.path.join(dir, filename or url.split("?")[0].rstrip("/").split("/")[-1])
    if not os.path.exists(path):
        download_file(path, url, progress)
    return path
