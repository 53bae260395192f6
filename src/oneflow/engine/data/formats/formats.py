"""The two record formats: a framing and a message each; and how to tell which one a file has."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record import messages
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.formats.files import Address, GzipSource, Source, open_source
from oneflow.engine.data.formats.framing import OFRECORD, Bytes, Framing
from oneflow.engine.data.formats.tfrecord import GZIP_MAGIC, TFRECORD


@dataclass(frozen=True)
class Format:
    """``frame`` gives the pieces to write for a body; ``encode`` and ``decode`` turn features into a message and back.

    ``pick`` decodes only the features that are named, without copying: their bytes values are views of the message.
    """

    name: str
    framing: Framing
    frame: Callable[[bytes], tuple[bytes, ...]]
    encode: Callable[[Mapping[str, FeatureValue]], bytes]
    decode: Callable[[Bytes], dict[str, FeatureValue]]
    pick: Callable[[Bytes, Collection[str]], dict[str, FeatureValue]]


FORMATS = {
    "ofrecord": Format(
        "ofrecord", OFRECORD, OFRECORD.frame, messages.encode_record, messages.decode_record, messages.pick_from_record
    ),
    "tfrecord": Format(
        "tfrecord",
        TFRECORD,
        TFRECORD.frame,
        messages.encode_example,
        messages.decode_example,
        messages.pick_from_example,
    ),
}


def named(name: str) -> Format:
    """The format ``"ofrecord"`` or ``"tfrecord"``."""
    if name not in FORMATS:
        raise ArgumentError(f"the format is one of {sorted(FORMATS)}, got {name!r}")
    return FORMATS[name]


def open_records(path: Address, format: str | None = None) -> tuple[Source, Format]:
    """Opens a file of records. Without ``format`` it is told by the first bytes; gzip TFRecord files are unpacked on
    the way.

    A TFRecord file is known by the CRC in its first bytes, so nothing else is taken for one; what has no such CRC
    counts as OFRecord unless its name says TFRecord.
    """
    source = open_source(path)
    try:
        start = source.read_at(0, 512)
        known = named(format) if format is not None else FORMATS[_guess(source.path, start)]
        if known.name == "tfrecord" and start.startswith(GZIP_MAGIC):
            return GzipSource(source), known
        if known.name == "tfrecord" and _is_tfrecord(_inflated(start, zlib.MAX_WBITS)):
            raise DataError(
                f"{source.path} is a TFRecord file of the compression ZLIB, which is not read; write it with GZIP or "
                f"without"
            )
        return source, known
    except BaseException:
        source.close()
        raise


def _guess(path: str, start: bytes) -> str:
    if (
        _is_tfrecord(start)
        or (start.startswith(GZIP_MAGIC) and _is_tfrecord(_inflated(start)))
        or _is_tfrecord(_inflated(start, zlib.MAX_WBITS))
    ):
        return "tfrecord"
    lower = path.lower()
    return "tfrecord" if ".tfrecord" in lower or lower.endswith(".gz") else "ofrecord"


def _is_tfrecord(start: bytes) -> bool:
    try:
        TFRECORD.length(start[: TFRECORD.head].ljust(TFRECORD.head, b"\0"))
    except DataError:
        return False
    return len(start) >= TFRECORD.head


def _inflated(start: bytes, wbits: int = zlib.MAX_WBITS | 16) -> bytes:
    try:
        return zlib.decompressobj(wbits=wbits).decompress(start, TFRECORD.head)
    except zlib.error:
        return b""
