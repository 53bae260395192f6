"""The framing of TFRecord files: lengths and bodies, each with a masked CRC-32C."""

from __future__ import annotations

import struct

import google_crc32c

from oneflow.engine.core.errors import DataError
from oneflow.engine.data.formats.framing import Bytes

GZIP_MAGIC = b"\x1f\x8b"


def masked_crc(data: bytes) -> int:
    """CRC-32C (Castagnoli), rotated right by 15 bits plus a constant, so that the CRC of data with CRCs in it is not
    degenerate."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF


class TFRecordFraming:
    """The CRC of the length is checked before the length is believed, the CRC of the body on every read."""

    name = "tfrecord"
    layout = struct.Struct("<QI")
    footer = struct.Struct("<I")
    head, tail = 12, 4
    largest = (1 << 31) - 1  # what a serialized message can have

    def length(self, head: Bytes) -> int:
        length, stored = self.layout.unpack(head)
        found = masked_crc(bytes(head[:8]))
        if found != stored:
            raise DataError(
                f"the CRC of the length is {stored:#010x} in the file and {found:#010x} by its bytes; "
                "this is no TFRecord file, or it is damaged from here on"
            )
        if length > self.largest:
            raise DataError(f"length {length} is more than {self.largest}")
        return length

    def check(self, body: bytes, tail: Bytes) -> None:
        (stored,) = self.footer.unpack(tail)
        found = masked_crc(body)
        if found != stored:
            raise DataError(
                f"the CRC of the record is {stored:#010x} in the file and {found:#010x} by its bytes; the record is "
                f"damaged"
            )

    def frame(self, body: bytes) -> tuple[bytes, ...]:
        length = struct.pack("<Q", len(body))
        return length, self.footer.pack(masked_crc(length)), body, self.footer.pack(masked_crc(body))


TFRECORD = TFRecordFraming()
