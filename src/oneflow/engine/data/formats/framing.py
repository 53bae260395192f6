"""How records lie in a file. Each framing is a table row: the bytes before a body, the bytes behind it, what they say.

    OFRecord   length int64                                       body
    TFRecord   length uint64   masked crc32c of the length uint32  body   masked crc32c of the body uint32

All numbers are little-endian. Reading and writing share the layouts and nothing else.
"""

from __future__ import annotations

import struct
from typing import Protocol

from oneflow.engine.core.errors import DataError

Bytes = bytes | bytearray | memoryview


class Framing(Protocol):
    """The read side of a framing. Errors say what is wrong; the caller says where."""

    name: str
    head: int  # bytes before a body
    tail: int  # bytes behind it
    largest: int  # a longer body is taken for damage

    def length(self, head: Bytes) -> int:
        """The length of the body that follows ``head``."""
        ...

    def check(self, body: bytes, tail: Bytes) -> None:
        """Raises if the body is not what was written."""
        ...


class OFRecordFraming:
    """No checksum, no magic number: what can be known to be wrong is a length that cannot be."""

    name = "ofrecord"
    layout = struct.Struct("<q")
    head, tail = 8, 0
    largest = 64 << 20

    def length(self, head: Bytes) -> int:
        (length,) = self.layout.unpack(head)
        if not 0 < length <= self.largest:
            raise DataError(
                f"length {length} is not between 1 and {self.largest}; this is no OFRecord part file, or it is damaged "
                f"from here on"
            )
        return length

    def check(self, body: bytes, tail: Bytes) -> None:
        pass

    def frame(self, body: bytes) -> tuple[bytes, ...]:
        return self.layout.pack(len(body)), body


OFRECORD = OFRecordFraming()
