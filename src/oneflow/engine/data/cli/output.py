"""Writing a data set: parts in parallel, all of them there at the end or none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from threading import Event
from typing import Any, TypeVar

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.formats.convert import for_format
from oneflow.engine.data.formats.files import (
    Address,
    is_folder,
    is_remote,
    join,
    list_files,
    local_path,
    make_folder,
    written_beside,
)
from oneflow.engine.data.formats.records import RecordWriter
from oneflow.engine.data.order import part_names

T = TypeVar("T")


@dataclass(frozen=True)
class Output:
    """What is written and how; made from the arguments of ``options.add_output``."""

    format: str = "ofrecord"
    gzip: bool = False
    parts: int = 1
    prefix: str = "part-"
    suffix_length: int = -1
    overwrite: bool = False
    threads: int = 1

    @classmethod
    def of(cls, arguments: Any) -> Output:
        output = cls(**{name: getattr(arguments, name) for name in cls.__dataclass_fields__})
        if output.gzip and output.format != "tfrecord":
            raise ArgumentError("--gzip is for --format tfrecord; an OFRecord file has no packed form")
        if not output.prefix or "/" in output.prefix:
            raise ArgumentError(f"--prefix is the beginning of a file's name, got {output.prefix!r}")
        return output


@contextmanager
def staged(folder: Address, prefix: str, overwrite: bool) -> Iterator[str]:
    """A folder to write a data set into; what is in it appears in ``folder`` when the body ends well.

    Where ``folder`` is new it appears in one step. Part files that are there already are an error, or with
    ``overwrite`` are replaced: also those that have no new one of the same name. A remote folder is written in place,
    each file complete, and must have no part files.
    """
    target = os.fspath(folder)
    old = _old_parts(target, prefix)
    if old and not overwrite:
        raise DataError(
            f"{target} has {len(old)} files named {prefix}*; give --overwrite to replace them, or another folder"
        )
    if is_remote(target):
        if old:
            raise DataError(
                f"{target} has {len(old)} files named {prefix}*; a remote data set is not overwritten, give another "
                f"folder"
            )
        make_folder(target)
        yield target
        return
    target = local_path(target).rstrip("/") or "/"
    stage = f"{target}.{os.getpid()}.tmp"
    make_folder(stage)
    try:
        yield stage
        _publish(stage, target, old)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _old_parts(folder: str, prefix: str) -> list[str]:
    return [name for name in list_files(folder) if name.startswith(prefix)] if is_folder(folder) else []


def _publish(stage: str, target: str, old: Sequence[str]) -> None:
    try:
        if not os.path.exists(target):
            os.rename(stage, target)
            return
        new = sorted(os.listdir(stage))
        for name in new:
            os.replace(os.path.join(stage, name), os.path.join(target, name))
        for name in set(old) - set(new):
            os.unlink(os.path.join(target, name))
    except OSError as error:
        raise DataError(f"{target} cannot be written: {error.strerror}") from None


def write_parts(
    folder: Address,
    items: Sequence[T],
    features: Callable[[T], Mapping[str, FeatureValue]],
    output: Output,
    done: Callable[[int], object],
) -> list[str]:
    """Writes one record an item into ``output.parts`` files of ``folder``, in order, and gives their names.

    The parts have equal numbers of records, the first ones one more where it does not come out even. ``features`` runs
    in many threads. The first error stops all.
    """
    if len(items) < output.parts:
        raise DataError(
            f"{output.parts} parts cannot be made of {len(items)} records; every part has at least one. Use --parts "
            f"{len(items) or 1}"
        )
    names = part_names(output.prefix, output.parts, output.suffix_length)
    stop = Event()

    def write(part: int) -> None:
        start, end = bounds(len(items), output.parts, part)
        with RecordWriter(join(folder, names[part]), output.format, "gzip" if output.gzip else None) as writer:
            for item in items[start:end]:
                if stop.is_set():
                    raise Stopped
                writer.write(for_format(features(item), output.format))
                done(1)

    in_threads(write, range(output.parts), output.threads, stop)
    return names


class Stopped(Exception):
    """Another thread failed, or the program is to end."""


def in_threads(work: Callable[[int], None], numbers: Sequence[int], threads: int, stop: Event) -> None:
    """``work(n)`` for all numbers. After the first error, or when the program is to end, the rest is stopped and waited
    for."""
    with ThreadPoolExecutor(threads, thread_name_prefix="oneflow-data") as pool:
        futures = [pool.submit(_stopping(work, stop), number) for number in numbers]
        try:
            wait(futures)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
        raise error


def _stopping(work: Callable[[int], None], stop: Event) -> Callable[[int], None]:
    def guarded(number: int) -> None:
        if stop.is_set():
            raise Stopped
        try:
            work(number)
        except BaseException:
            stop.set()
            raise

    return guarded


def bounds(count: int, parts: int, part: int) -> tuple[int, int]:
    """First and end of the items of a part."""
    each, more = divmod(count, parts)
    start = part * each + min(part, more)
    return start, start + each + (part < more)


def shuffled(items: Sequence[T], name: Callable[[T], str], seed: int) -> list[T]:
    """The items in an order that depends on their names and the seed alone, the same on every machine and version."""
    return sorted(items, key=lambda item: blake2b(f"{seed}:{name(item)}".encode(), digest_size=16).digest())


def write_labels(folder: Address, names: Sequence[str]) -> None:
    """``labels.txt``: a line ``<label>:<name>`` for each class."""
    with written_beside(join(folder, "labels.txt")) as file:
        file.write("".join(f"{label}:{name}\n" for label, name in enumerate(names)).encode())
