"""``verify``: reads every record and decodes every picture, and says what is wrong where."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.cli import options
from oneflow.engine.data.cli.images import encoded_images, is_image_name
from oneflow.engine.data.dataset import expand
from oneflow.engine.data.formats.index import RecordFile
from oneflow.engine.data.image import decode

HELP = (
    "Read every record, check lengths and checksums, and decode every picture. Each problem is a line with file, "
    "record number and byte "
    "offset; the exit code is 1 if there is any."
)
_CHUNK = 64


@dataclass
class Findings:
    """What some records were found to be."""

    records: int = 0
    pictures: int = 0
    problems: list[str] = field(default_factory=list)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", help="files, or folders of part files")
    parser.add_argument(
        "--require", action="append", default=[], metavar="KEY", help="a record without this feature is a problem"
    )
    parser.add_argument("--no-images", action="store_true", help="do not decode pictures")
    options.add_input(parser)
    options.add_threads(parser)


def run(arguments: argparse.Namespace) -> int:
    total, files = Findings(), 0
    with ThreadPoolExecutor(arguments.threads, thread_name_prefix="oneflow-verify") as pool:
        for path in _paths(arguments, total):
            files += 1
            _report(_verify(arguments, path, pool, total), total)
    print(f"{files} files, {total.records} records, {total.pictures} pictures, {len(total.problems)} problems")
    return 1 if total.problems else 0


def _paths(arguments: argparse.Namespace, total: Findings) -> Iterator[str]:
    for source in arguments.sources:
        try:
            yield from expand(source, arguments.prefix)
        except DataError as error:
            _report([str(error)], total)


def _report(problems: Sequence[str], total: Findings) -> None:
    for problem in problems:
        print(problem)
    total.problems += problems


def _verify(arguments: argparse.Namespace, path: str, pool: ThreadPoolExecutor, total: Findings) -> list[str]:
    try:
        file = RecordFile(path, arguments.format, tolerant=True)
    except DataError as error:
        return [str(error)]
    with file, options.progress(len(file), "records") as done:
        problems: list[str] = []
        chunks = [range(start, min(start + _CHUNK, len(file))) for start in range(0, len(file), _CHUNK)]
        for found in pool.map(lambda chunk: _check_chunk(arguments, file, chunk), chunks):
            problems += found.problems
            total.records += found.records
            total.pictures += found.pictures
            done(found.records)
    if file.damage is not None:
        problems.append(str(file.damage))
    elif file.size == 0:
        problems.append(f"{path}: record 0 at byte 0: the file is empty")
    return problems


def _check_chunk(arguments: argparse.Namespace, file: RecordFile, numbers: range) -> Findings:
    found = Findings()
    for number in numbers:
        found.records += 1
        try:
            record = file[number]
            features = record.features
        except DataError as error:
            found.problems.append(str(error))
            continue
        problems = [
            f"feature {key!r} is missing; the record has {sorted(features)}"
            for key in arguments.require
            if key not in features
        ]
        if not arguments.no_images:
            problems += _check_images(features, found)
        found.problems += [f"{record.where}: {problem}" for problem in problems]
    return found


def _check_images(features: dict[str, FeatureValue], found: Findings) -> list[str]:
    images = encoded_images(features)
    problems = [
        f"feature {key!r} should be one picture, it is a {feature.kind or 'feature without a list'} of "
        f"{len(feature.values)} values"
        for key, feature in features.items()
        if is_image_name(key) and key not in images
    ]
    for key, data in images.items():
        found.pictures += 1
        try:
            decode(data)
        except DataError as error:
            problems.append(f"feature {key!r}: {error}")
    return problems
