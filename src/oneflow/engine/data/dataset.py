"""Parts: the files of a data set as one sequence of records."""

from __future__ import annotations

import bisect
import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.formats.files import Address, base_name, is_folder, join, list_files
from oneflow.engine.data.formats.index import SUFFIX, RecordFile
from oneflow.engine.data.formats.records import Record

_OPEN_FILES = 128  # systems allow a process 256 or 1024


class Parts:
    """All records of some part files, in the order of the files; ``parts[i]`` may be asked from many threads.

    ``paths`` is a list of addresses, or one address; ``format`` is "ofrecord", "tfrecord" or None to tell it file by
    file. A part that is missing, empty or damaged in its framing is a ``DataError``. With ``tolerant``, what can be
    read of a damaged file is read, and ``damages`` lists what is wrong (a missing part is an error all the same).
    """

    def __init__(self, paths: Sequence[Address] | Address, format: str | None = None, tolerant: bool = False) -> None:
        addresses = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not addresses:
            raise ArgumentError("a data set has at least one part file, got an empty list")
        self.paths = [str(path) for path in addresses]
        self.damages: list[DataError] = []
        self._formats: list[str] = []
        self._sizes: list[int] = []
        self._tolerant = tolerant
        self._open: OrderedDict[int, RecordFile] = OrderedDict()
        self._lock = threading.Lock()
        counts = [self._add(path, format) for path in self.paths]
        self._starts = [0, *itertools.accumulate(counts)]
        if len(self) == 0:
            raise DataError(
                f"there is not one record in {self.paths[0]} and the other parts ({len(self.paths)} in all)"
            )

    def _add(self, path: str, format: str | None) -> int:
        file = RecordFile(path, format, self._tolerant)
        self._formats.append(file.format)
        self._sizes.append(file.size)
        if file.damage is not None:
            self.damages.append(file.damage)
        if file.size == 0 and file.damage is None:
            empty = DataError(
                f"{path}: record 0 at byte 0: the file is empty; make the data set again or leave the part out"
            )
            if not self._tolerant:
                file.close()
                raise empty
            self.damages.append(empty)
        self._remember(len(self._formats) - 1, file)
        return len(file)

    @classmethod
    def of_folder(cls, folder: Address, prefix: str = "part-", format: str | None = None) -> Parts:
        """All files of a folder whose names begin with ``prefix``, in the order of their numbers."""
        return cls([join(folder, name) for name in part_files(folder, prefix)], format)

    @property
    def format(self) -> str:
        """ "ofrecord" or "tfrecord"; "ofrecord and tfrecord" where the parts are mixed."""
        return " and ".join(sorted(set(self._formats)))

    @property
    def counts(self) -> list[int]:
        """The number of records of each part."""
        return [end - start for start, end in itertools.pairwise(self._starts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: int) -> Record:
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"the data set has {len(self)} records, number {number} was asked for")
        part = bisect.bisect_right(self._starts, number) - 1
        return self._file(part)[number - self._starts[part]]

    def __iter__(self) -> Iterator[Record]:
        """The records in turn; one is held at a time."""
        for part in range(len(self.paths)):
            yield from self._file(part)

    def fingerprint(self) -> dict[str, Any]:
        """What tells this data set from another: the names, sizes and record counts of its parts. Fit for JSON."""
        return {"files": [[base_name(p), size, count] for p, size, count in zip(self.paths, self._sizes, self.counts)]}

    def close(self) -> None:
        """Closes the files. Records that were read stay; asking for another opens its file again."""
        with self._lock:
            files, self._open = list(self._open.values()), OrderedDict()
        for file in files:
            file.close()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Parts of {len(self)} records in {len(self.paths)} files, the first {self.paths[0]}>"

    def _file(self, part: int) -> RecordFile:
        with self._lock:
            file = self._open.get(part)
            if file is not None:
                self._open.move_to_end(part)
                return file
        file = RecordFile(self.paths[part], self._formats[part], self._tolerant)
        self._check_unchanged(part, file)
        self._remember(part, file)
        return file

    def _remember(self, part: int, file: RecordFile) -> None:
        """Keeps a file open; the one not used for longest is let go and closes when the last thread is done with it."""
        with self._lock:
            self._open[part] = file
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)

    def _check_unchanged(self, part: int, file: RecordFile) -> None:
        if (file.size, len(file)) != (self._sizes[part], self.counts[part]):
            file.close()
            raise DataError(
                f"{self.paths[part]} had {self.counts[part]} records, now it has {len(file)}; a part may not change "
                f"while it is read"
            )


def part_files(folder: Address, prefix: str = "part-") -> list[str]:
    """The names of a folder's part files, in the order of their numbers; indexes and unfinished files left out."""
    names = [name for name in list_files(folder) if name.startswith(prefix) and not name.endswith((SUFFIX, ".tmp"))]
    if not names:
        raise DataError(f"{folder}: there is no file whose name begins with {prefix!r}")
    names.sort(key=lambda name: (_number(name, prefix), name))
    _check_numbers(folder, [_number(name, prefix) for name in names])
    return names


def _check_numbers(folder: Address, numbers: list[int]) -> None:
    """Parts are numbered from 0 without gaps; a gap is a part that got lost."""
    if min(numbers) < 0:
        return
    missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
    if missing:
        raise DataError(
            f"{folder}: there are parts up to number {max(numbers)}, but none with number "
            f"{', '.join(map(str, missing[:10]))}"
        )
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise DataError(f"{folder}: there are two parts with number {twice}; keep one data set a folder")


def _number(name: str, prefix: str) -> int:
    digits = "".join(itertools.takewhile(str.isdigit, name[len(prefix) :]))
    return int(digits) if digits else -1


def expand(address: Address, prefix: str = "part-") -> list[str]:
    """A folder's part files, or the one file that was named."""
    return [join(address, name) for name in part_files(address, prefix)] if is_folder(address) else [str(address)]
