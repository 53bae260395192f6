"""``show``: what is in record files."""

from __future__ import annotations

import argparse
import io
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.optional import package_or_stub
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.cli import options
from oneflow.engine.data.cli.images import encoded_images, image_key
from oneflow.engine.data.dataset import Parts, expand
from oneflow.engine.data.formats.files import written_beside
from oneflow.engine.data.formats.records import Record
from oneflow.engine.data.image import decode

if TYPE_CHECKING:
    from PIL import Image, ImageDraw
else:
    Image, ImageDraw = (
        package_or_stub(f"PIL.{name}", "vision", "a sheet of images") for name in ("Image", "ImageDraw")
    )

HELP = "Show how many records there are, which fields they have, the first of them, and a sheet of their pictures."
_CELL, _CAPTION = 128, 14


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a file, or a folder of part files")
    parser.add_argument(
        "--records",
        type=options.at_least(0),
        default=3,
        metavar="N",
        help="print the first N records (default: %(default)s)",
    )
    parser.add_argument(
        "--scan",
        type=options.at_least(1),
        default=1000,
        metavar="N",
        help="look at the first N records for the table of fields (default: %(default)s)",
    )
    parser.add_argument("--sheet", metavar="PNG", help="write the first pictures, small and side by side, to this file")
    parser.add_argument(
        "--pictures",
        type=options.at_least(1),
        default=64,
        metavar="N",
        help="pictures on the sheet (default: %(default)s)",
    )
    parser.add_argument(
        "--columns", type=options.at_least(1), default=8, metavar="N", help="pictures in a row (default: %(default)s)"
    )
    parser.add_argument("--key", help="the feature with the picture (default: the first that is one)")
    options.add_input(parser)


def run(arguments: argparse.Namespace) -> int:
    with Parts(expand(arguments.source, arguments.prefix), arguments.format) as parts:
        _print_files(parts)
        _print_fields(parts, min(arguments.scan, len(parts)))
        for number in range(min(arguments.records, len(parts))):
            _print_record(parts[number])
        if arguments.sheet:
            _write_sheet(arguments, parts)
    return 0


def _print_files(parts: Parts) -> None:
    fingerprint = parts.fingerprint()["files"]
    size = sum(size for _, size, _ in fingerprint)
    print(f"{len(parts)} records in {len(parts.paths)} files of format {parts.format}, {size} bytes")
    for name, size, count in fingerprint[:20]:
        print(f"  {name}  {count} records, {size} bytes")
    if len(fingerprint) > 20:
        print(f"  and {len(fingerprint) - 20} more")


# ------------------------------------------------------------------ fields


@dataclass
class _Field:
    """What was seen of one feature."""

    kinds: set[str] = field(default_factory=set)
    records: int = 0
    counts: set[int] = field(default_factory=set)
    sizes: list[int] = field(default_factory=list)
    lowest: float = float("inf")
    highest: float = float("-inf")

    def see(self, feature: FeatureValue) -> None:
        self.kinds.add(feature.kind or "nothing")
        self.records += 1
        self.counts.add(len(feature.values))
        if feature.kind == "bytes_list":
            self.sizes += map(len, feature.values)
        elif len(feature.values):
            self.lowest = min(self.lowest, feature.values.min().item())
            self.highest = max(self.highest, feature.values.max().item())

    def row(self) -> tuple[str, str, str]:
        values = ""
        if self.sizes:
            values = f"{_span(self.sizes)} bytes"
        elif self.lowest <= self.highest:
            values = f"{self.lowest:g} to {self.highest:g}"
        return " or ".join(sorted(self.kinds)), f"({_span(self.counts)},)", values


def _span(numbers: Iterable[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}..{high}"


def _print_fields(parts: Parts, scanned: int) -> None:
    seen: dict[str, _Field] = {}
    for record in itertools.islice(parts, scanned):
        for key, feature in record.features.items():
            seen.setdefault(key, _Field()).see(feature)
    print(f"\nfields of {'all' if scanned == len(parts) else 'the first'} {scanned} records: kind, shape, values")
    rows = [(key, *seen[key].row()) for key in sorted(seen)]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    for key, kind, shape, values in rows:
        missing = "" if seen[key].records == scanned else f"  in {seen[key].records} of {scanned} records"
        print(f"  {key:{widths[0]}}  {kind:{widths[1]}}  {shape:{widths[2]}}  {values}{missing}".rstrip())


def _print_record(record: Record) -> None:
    print(f"\n{record.where}, {len(record.body)} bytes")
    images = encoded_images(record.features)
    for key, feature in sorted(record.features.items()):
        print(f"  {key}: {_picture_text(images[key]) if key in images else _values_text(feature)}")


def _picture_text(data: bytes) -> str:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return f"{image.format} {image.width}x{image.height} {image.mode}, {len(data)} bytes"
    except (OSError, SyntaxError, ValueError) as error:
        return f"{len(data)} bytes that are no picture: {error}"


def _values_text(feature: FeatureValue, most: int = 8) -> str:
    shown = [_bytes_text(value) if feature.kind == "bytes_list" else f"{value:g}" for value in feature.values[:most]]
    more = f" ... ({len(feature.values)} values)" if len(feature.values) > most else ""
    return "[" + ", ".join(shown) + "]" + more


def _bytes_text(value: bytes, most: int = 60) -> str:
    shown = repr(value[:most])[1:]
    return shown if len(value) <= most else f"{shown}... ({len(value)} bytes)"


# ------------------------------------------------------------------ contact sheet


def _write_sheet(arguments: argparse.Namespace, parts: Parts) -> None:
    key = arguments.key or image_key(parts[0].features)
    if key is None:
        raise DataError(
            f"{parts[0].where}: no feature looks like a picture; name it with --key. The record has "
            f"{sorted(parts[0].features)}"
        )
    count = min(arguments.pictures, len(parts))
    columns = min(arguments.columns, count)
    rows = -(-count // columns)
    sheet = Image.new("RGB", (columns * _CELL, rows * (_CELL + _CAPTION)), "white")
    draw = ImageDraw.Draw(sheet)
    for number in range(count):
        x, y = number % columns * _CELL, number // columns * (_CELL + _CAPTION)
        thumbnail = _thumbnail(parts[number], key)
        sheet.paste(thumbnail, (x + (_CELL - thumbnail.width) // 2, y + (_CELL - thumbnail.height) // 2))
        draw.text((x + 2, y + _CELL + 1), _caption(parts[number]), fill="black")
    with written_beside(arguments.sheet) as file:
        sheet.save(file, "PNG")
    print(f"\n{count} pictures: {arguments.sheet}")


def _thumbnail(record: Record, key: str) -> Image.Image:
    feature = record.features.get(key)
    if feature is None or feature.kind != "bytes_list" or len(feature.values) != 1:
        raise DataError(f"{record.where}: feature {key!r} is not one picture; the record has {sorted(record.features)}")
    try:
        pixels = decode(feature.values[0], "RGB")
    except DataError as error:
        raise DataError(f"{record.where}: feature {key!r}: {error}") from None
    image = Image.fromarray(np.asarray(pixels))
    scale = min((_CELL - 4) / image.width, (_CELL - 4) / image.height)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.BOX if scale > 1 else Image.Resampling.BILINEAR)


def _caption(record: Record) -> str:
    for key, feature in record.features.items():
        if key.endswith("class/label") or key in ("label", "labels"):
            return f"{record.number}: {feature.values[0] if len(feature.values) else ''}"
    return str(record.number)
