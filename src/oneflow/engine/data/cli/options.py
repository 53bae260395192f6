"""Arguments that several verbs share, and how progress is shown."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from tqdm import tqdm

from oneflow.engine.core.errors import DataError


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type: an int that is not below ``least``."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads",
        type=at_least(1),
        default=cores(),
        metavar="N",
        help="threads that work (default: one a core, %(default)s)",
    )


def add_output(parser: argparse.ArgumentParser, parts: int | None = 1, suffix_length: int = -1) -> None:
    """How part files are written."""
    parser.add_argument("--format", choices=["ofrecord", "tfrecord"], default="ofrecord", help="(default: %(default)s)")
    parser.add_argument("--gzip", action="store_true", help="pack the files; for tfrecord only")
    parser.add_argument(
        "--parts", type=at_least(1), default=parts, metavar="N", help="number of part files (default: %(default)s)"
    )
    parser.add_argument(
        "--prefix", default="part-", help="what the names of part files begin with (default: %(default)s)"
    )
    parser.add_argument(
        "--suffix-length", type=int, default=suffix_length, metavar="N",
        help="digits of the number in a part's name: -1 for part-0, 5 for part-00000 (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace the part files that are there")
    add_threads(parser)


def add_input(parser: argparse.ArgumentParser) -> None:
    """How part files are found and read."""
    parser.add_argument(
        "--format", choices=["ofrecord", "tfrecord"], help="(default: told by the first bytes of each file)"
    )
    parser.add_argument(
        "--prefix", default="part-", help="in a folder, the files whose names begin so (default: %(default)s)"
    )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def progress(total: int, unit: str) -> Iterator[Callable[[int], object]]:
    """A bar on stderr, on a terminal only. What it gives is called with the number of things done, from any thread."""
    lock = Lock()

    def done(count: int) -> None:
        with lock:
            bar.update(count)

    with _Bar(total=total or None, unit=" " + unit, disable=None, dynamic_ncols=True) as bar:
        yield done


class _Bar(tqdm):
    """A bar without tqdm's own thread, which would outlive it."""

    monitor_interval = 0


def read_lines(path: str) -> list[str]:
    """The lines of a text file that are not blank."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]
