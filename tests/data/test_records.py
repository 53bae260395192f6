"""Framing: what is read, what is refused, what stays on disk when writing fails."""

import os
import struct
import tracemalloc

import pytest

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data.formats.records import RecordWriter, read_records, write_records

BODY = bytes.fromhex("0a 0a 0a 01 6b 12 05 22 03 0a 01 07")


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack("<q", len(body)) + body for body in bodies)


def write(path, data: bytes):
    path.write_bytes(data)
    return path


def test_records_and_where_they_lie(tmp_path):
    path = write(tmp_path / "part-0", framed(b"abc", BODY, b"z"))
    records = list(read_records(path))
    assert [(r.number, r.offset, r.end) for r in records] == [(0, 0, 11), (1, 11, 31), (2, 31, 40)]
    assert [r.body for r in records] == [b"abc", BODY, b"z"]
    assert records[1].features["k"].values.tolist() == [7]
    again = list(read_records(path, records[1].offset, records[1].number))
    assert [(r.number, r.body) for r in again] == [(1, BODY), (2, b"z")]
    assert list(read_records(path, records[2].end, 3)) == []


@pytest.mark.parametrize("format", ["ofrecord", "tfrecord"])
def test_the_format_is_told_from_the_file(tmp_path, format):
    write_records(tmp_path / "part-0", [b"abc", BODY], format)
    assert [(r.body, r.format.name) for r in read_records(tmp_path / "part-0")] == [(b"abc", format), (BODY, format)]


def test_an_empty_file_has_no_records(tmp_path):
    assert list(read_records(write(tmp_path / "part-0", b""))) == []


BROKEN = [
    (framed(b"abc") + b"\x05\x00\x00", "record 1 at byte 11: the file ends inside the 8 bytes of the length"),
    (
        framed(b"abc") + struct.pack("<q", 5) + b"ab",
        "record 1 at byte 11: the record has 5 bytes, the file only 2 more",
    ),
    (framed(b"abc") + struct.pack("<q", 0), "record 1 at byte 11: length 0 is not between"),
    (struct.pack("<q", -4) + b"abcd", "record 0 at byte 0: length -4 is not between"),
    (struct.pack(">q", 4) + b"abcd", "record 0 at byte 0: length 288230376151711744 is not between"),
    (b"\xff\xd8\xff\xe0 a picture", "no OFRecord part file"),
]


@pytest.mark.parametrize(("data", "reason"), BROKEN)
def test_broken_files_name_file_record_and_byte(tmp_path, data, reason):
    path = write(tmp_path / "part-0", data)
    with pytest.raises(DataError, match=reason) as error:
        list(read_records(path))
    assert str(path) in str(error.value)


def test_a_broken_message_names_its_record(tmp_path):
    records = list(read_records(write(tmp_path / "part-0", framed(BODY, b"\x0a\x7f"))))
    assert records[0].features
    with pytest.raises(DataError, match="part-0: record 1 at byte 20: broken message: byte 0: a field of 127 bytes"):
        _ = records[1].features


def test_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="cannot be opened: No such file"):
        next(read_records(tmp_path / "part-9"))


def test_memory_does_not_grow_with_the_file(tmp_path):
    body = os.urandom(1 << 18)
    write_records(tmp_path / "part-0", (body for _ in range(64)))
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_records(tmp_path / "part-0")) == 64
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_length_the_file_cannot_hold_allocates_nothing(tmp_path):
    path = write(tmp_path / "part-0", struct.pack("<q", 60 << 20) + b"abc")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="only 3 more"):
            next(read_records(path))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_writer_takes_bytes_and_messages(tmp_path):
    class Message:
        def SerializeToString(self):
            return BODY

    write_records(tmp_path / "part-0", [b"abc", Message()])
    assert (tmp_path / "part-0").read_bytes() == framed(b"abc", BODY)
    assert os.listdir(tmp_path) == ["part-0"]


@pytest.mark.parametrize("message", ["abc", 5, None, {"label": 3}, [1, 2]])
def test_writer_refuses_what_is_no_record(tmp_path, message):
    with pytest.raises(ArgumentError, match=r"part-0: a record is bytes, a mapping"):
        write_records(tmp_path / "part-0", [message])
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = write(tmp_path / "part-0", framed(b"old"))
    with pytest.raises(RuntimeError, match="half way"), RecordWriter(path) as writer:
        writer.write(b"new")
        assert path.read_bytes() == framed(b"old")
        raise RuntimeError("half way")
    assert path.read_bytes() == framed(b"old")
    assert os.listdir(tmp_path) == ["part-0"]


def test_writer_refuses_an_empty_record_and_use_before_opening(tmp_path):
    with pytest.raises(ArgumentError, match="between 1 and"):
        write_records(tmp_path / "part-0", [b""])
    assert os.listdir(tmp_path) == []
    with pytest.raises(ArgumentError, match="with statement"):
        RecordWriter(tmp_path / "part-0").write(b"abc")
