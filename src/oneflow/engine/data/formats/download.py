"""Fetching files over HTTP: quick to see that there is no network, checked by SHA-256 or MD5, complete or not there at
all."""

from __future__ import annotations

import hashlib
import http.client
import os
import queue
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from oneflow.engine.core.errors import DataError

_PROBE_SECONDS = 2.0
_READ_SECONDS = 10.0
_CHUNK = 1 << 16
_MD5_DIGITS = 32
_FAILURES = (OSError, http.client.HTTPException, DataError)


def answering(mirrors: Sequence[str], file: str, seconds: float = _PROBE_SECONDS) -> list[str]:
    """The mirrors without those known to fail, the first that answered in front; empty if none answers in time.

    All are asked at once, in threads, because looking up a host's address obeys no timeout.
    """
    answers: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()

    def ask(mirror: str) -> None:
        answers.put((mirror, _opens(mirror + file, seconds)))

    for mirror in mirrors:
        threading.Thread(target=ask, args=(mirror,), daemon=True).start()
    failed: set[str] = set()
    deadline = time.monotonic() + seconds
    for _ in mirrors:
        try:
            mirror, works = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return []
        if works:
            return [mirror, *(m for m in mirrors if m != mirror and m not in failed)]
        failed.add(mirror)
    return []


def _opens(url: str, seconds: float) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=seconds):
            return True
    except _FAILURES:
        return False


def fetch_all(folder: Path, mirrors: Sequence[str], sums: Mapping[str, str]) -> str | None:
    """Brings every file of ``sums`` (name to checksum) that ``folder`` lacks; None if all are there, else what
    failed."""
    for file, checksum in sums.items():
        if not (folder / file).exists():
            reason = _fetch(folder / file, mirrors, checksum)
            if reason is not None:
                return reason
    return None


def _fetch(target: Path, mirrors: Sequence[str], checksum: str) -> str | None:
    reason = None
    for mirror in mirrors:
        try:
            fetch(mirror + target.name, target, checksum)
            return None
        except _FAILURES as error:
            reason = str(error)
    return reason


def fetch(url: str, target: Path, checksum: str | None) -> None:
    """Downloads to a name beside ``target`` and renames it when its checksum is right; otherwise a ``DataError``, and
    no file.

    ``checksum`` is a SHA-256, an MD5, by which many data sets were published, or None to take what comes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        kind = "MD5" if checksum is not None and len(checksum) == _MD5_DIGITS else "SHA-256"
        found = _save(url, beside, hashlib.md5(usedforsecurity=False) if kind == "MD5" else hashlib.sha256())
        if checksum is not None and found != checksum:
            raise DataError(f"{url}: {kind} {found}, expected {checksum}; the file was not kept")
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def _save(url: str, path: Path, digest: Any) -> str:
    with urllib.request.urlopen(url, timeout=_READ_SECONDS) as reply, open(path, "wb") as file:
        size = int(reply.headers.get("Content-Length") or 0) or None
        with _progress(url.rsplit("/", 1)[-1], size) as received:
            while chunk := reply.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
                received(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


@contextmanager
def _progress(name: str, size: int | None) -> Iterator[Callable[[int], object]]:
    """What to call with each number of bytes received. On a terminal it draws a bar; tqdm is left alone otherwise,
    because it starts a thread even for a bar that is not shown."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    with tqdm(total=size, unit="B", unit_scale=True, desc=name) as bar:
        yield bar.update
