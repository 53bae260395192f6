"""``convert``: OFRecord to TFRecord and back."""

from __future__ import annotations

import argparse
from threading import Event

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.cli import options
from oneflow.engine.data.cli.output import Stopped, in_threads, staged
from oneflow.engine.data.dataset import expand
from oneflow.engine.data.formats.convert import for_format
from oneflow.engine.data.formats.files import base_name, is_folder, join, list_files, open_source, written_beside
from oneflow.engine.data.formats.records import RecordWriter, read_records

HELP = (
    "Convert OFRecord to TFRecord or back; every value stays what it is. To TFRecord, int32 lists become int64 lists "
    "and "
    "double lists float lists (an error if a value would change); to OFRecord, int64 lists stay int64 lists unless "
    "--int32 names them."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a file, or a folder of part files")
    parser.add_argument("out", help="the file, or for a folder the folder, to write; files keep their names")
    parser.add_argument("--to", choices=["ofrecord", "tfrecord"], required=True)
    parser.add_argument("--gzip", action="store_true", help="pack the files; for --to tfrecord only")
    parser.add_argument(
        "--int32", action="append", default=[], metavar="KEY", help="write this int64 feature as int32 (OFRecord only)"
    )
    parser.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="give a feature another name")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    options.add_input(parser)
    options.add_threads(parser)


def run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    sources = expand(arguments.source, arguments.prefix)
    if is_folder(arguments.source):
        with staged(arguments.out, arguments.prefix, arguments.overwrite) as folder:
            count = _convert(arguments, sources, [join(folder, base_name(source)) for source in sources])
            _copy_labels(arguments.source, folder)
    else:
        _check_new(arguments)
        count = _convert(arguments, sources, [arguments.out])
    print(f"{count} records in {len(sources)} {arguments.to} files: {arguments.out}")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.gzip and arguments.to != "tfrecord":
        raise ArgumentError("--gzip is for --to tfrecord; an OFRecord file has no packed form")
    if arguments.int32 and arguments.to != "ofrecord":
        raise ArgumentError("--int32 is for --to ofrecord; a TFRecord has int64 lists only")
    _names(arguments)


def _names(arguments: argparse.Namespace) -> dict[str, str]:
    pairs = [pair.split("=", 1) for pair in arguments.rename]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise ArgumentError(f"--rename takes OLD=NEW, got {' '.join(arguments.rename)}")
    return dict(pairs)


def _check_new(arguments: argparse.Namespace) -> None:
    try:
        open_source(arguments.out).close()
    except DataError:
        return
    if not arguments.overwrite:
        raise DataError(f"{arguments.out} is there; give --overwrite to replace it")


def _convert(arguments: argparse.Namespace, sources: list[str], targets: list[str]) -> int:
    names, stop = _names(arguments), Event()
    counts = [0] * len(sources)
    found: list[set[str]] = [set() for _ in sources]

    def work(number: int) -> None:
        with RecordWriter(targets[number], arguments.to, "gzip" if arguments.gzip else None) as writer:
            for record in read_records(sources[number], format=arguments.format):
                if stop.is_set():
                    raise Stopped
                try:
                    found[number].update(record.features)
                    writer.write(for_format(_renamed(record.features, names), arguments.to, arguments.int32))
                except (DataError, ArgumentError) as error:
                    raise DataError(_placed(str(error), record.where)) from None
                done(1)
            counts[number] = writer.count
            if len(sources) == 1:
                _check_found(arguments, found[0])  # before the file appears; a folder does so as a whole

    with options.progress(0, "records") as done:
        in_threads(work, range(len(sources)), arguments.threads, stop)
    _check_found(arguments, set().union(*found))
    return sum(counts)


def _check_found(arguments: argparse.Namespace, found: set[str]) -> None:
    """A name that no record has is a mistyped one."""
    names = _names(arguments)
    renamed = {names.get(key, key) for key in found}
    for option, keys, known in (("--rename", names, found), ("--int32", arguments.int32, renamed)):
        missing = sorted(set(keys) - known)
        if missing:
            raise DataError(
                f"{arguments.source}: {option}: no record has a feature {missing[0]!r}; the features are "
                f"{', '.join(sorted(known))}"
            )


def _placed(message: str, where: str) -> str:
    return message if message.startswith(where) else f"{where}: {message}"


def _renamed(features: dict[str, FeatureValue], names: dict[str, str]) -> dict[str, FeatureValue]:
    renamed = {names.get(key, key): value for key, value in features.items()}
    if len(renamed) != len(features):
        raise DataError(f"--rename gives two of the features {sorted(features)} one name")
    return renamed


def _copy_labels(source: str, folder: str) -> None:
    if "labels.txt" in list_files(source):
        labels = open_source(join(source, "labels.txt"))
        with written_beside(join(folder, "labels.txt")) as file:
            file.write(labels.read_at(0, labels.size))
        labels.close()
