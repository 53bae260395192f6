"""RecordFile: random access, the kept index, damage."""

import os
import re
import struct
import threading
import tracemalloc

import pytest

from oneflow.engine.core.errors import DataError
from oneflow.engine.data.formats import index
from oneflow.engine.data.formats.index import RecordFile
from oneflow.engine.data.formats.records import read_records, write_records

FORMATS = [("ofrecord", None), ("tfrecord", None), ("tfrecord", "gzip")]
BODIES = [bytes([n % 256]) * (n % 50 + 1) for n in range(300)]


@pytest.fixture(params=FORMATS, ids=lambda f: f"{f[0]}{'-gzip' if f[1] else ''}")
def path(request, tmp_path):
    write_records(tmp_path / "part-0", BODIES, *request.param)
    return tmp_path / "part-0"


def content(file):
    return [bytes(file[n].body) for n in range(len(file))]


def test_any_record_by_its_number(path):
    with RecordFile(path) as file:
        assert len(file) == 300
        assert content(file) == BODIES
        assert bytes(file[-1].body) == BODIES[-1]
        in_turn = list(file)
        assert [(r.number, r.offset, r.end, bytes(r.body)) for r in in_turn] == [
            (n, file.offset(n), file.offset(n + 1), BODIES[n]) for n in range(300)
        ]
        assert file[7].where == f"{path}: record 7 at byte {file.offset(7)}"
        for number in (300, -301):
            with pytest.raises(IndexError, match="has 300 records"):
                file[number]


def test_the_index_is_made_once(path, monkeypatch):
    RecordFile(path).close()
    assert sorted(os.listdir(path.parent)) == ["part-0", "part-0.idx"]
    monkeypatch.setattr(index, "_hop", lambda *_: pytest.fail("hopped again"))
    with RecordFile(path) as file:
        assert content(file) == BODIES


def test_a_stale_index_is_made_again(path, request):
    RecordFile(path).close()
    stamp = os.stat(path).st_mtime_ns
    write_records(path, BODIES[:100])
    with RecordFile(path) as file:
        assert content(file) == BODIES[:100]
    write_records(path, BODIES[100:110] + BODIES[100:105])
    os.utime(path, ns=(stamp, stamp + 1))
    with RecordFile(path) as file:
        assert len(file) == 15


def _cut(data):
    return data[:-8]


def _header_only(data):
    return data[:20]


def _other_magic(data):
    return b"x" + data[1:]


def _other_offset(data):
    return data[:-1] + b"\x01"


@pytest.mark.parametrize("spoil", [_cut, _header_only, _other_magic, _other_offset, lambda data: b""])
def test_a_spoilt_index_is_made_again(path, spoil):
    RecordFile(path).close()
    kept = path.with_name("part-0.idx")
    good = kept.read_bytes()
    kept.write_bytes(spoil(good))
    with RecordFile(path) as file:
        assert content(file) == BODIES
    assert kept.read_bytes() == good


def test_where_nothing_can_be_written_there_is_no_index(path, monkeypatch):
    def refuse(_):
        raise DataError("read-only")

    monkeypatch.setattr(index, "written_beside", refuse)
    with RecordFile(path) as file:
        assert content(file) == BODIES
    assert os.listdir(path.parent) == ["part-0"]


def test_a_folder_in_the_place_of_the_index(path):
    path.with_name("part-0.idx").mkdir()
    with RecordFile(path) as file:
        assert content(file) == BODIES
    assert sorted(os.listdir(path.parent)) == ["part-0", "part-0.idx"]


def test_an_index_of_the_other_format_is_not_used(tmp_path):
    write_records(tmp_path / "a", BODIES, "tfrecord")
    RecordFile(tmp_path / "a").close()
    with pytest.raises(DataError, match="record . at byte"):
        RecordFile(tmp_path / "a", format="ofrecord")


def framed(*bodies):
    return b"".join(struct.pack("<q", len(body)) + body for body in bodies)


DAMAGED = [
    (framed(b"abc", b"de") + b"\x05\x00", "record 2 at byte 21: the file ends inside the 8 bytes"),
    (
        framed(b"abc", b"de") + struct.pack("<q", 9) + b"xy",
        "record 2 at byte 21: the record has 9 bytes, the file only 2 more",
    ),
    (framed(b"abc", b"de") + struct.pack("<q", -1) + b"xy", "record 2 at byte 21: length -1 is not between"),
]


@pytest.mark.parametrize(("data", "reason"), DAMAGED)
def test_damage_is_an_error_or_kept_for_the_tolerant(tmp_path, data, reason):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(DataError, match=reason):
        RecordFile(tmp_path / "a")
    with RecordFile(tmp_path / "a", tolerant=True) as file:
        assert content(file) == [b"abc", b"de"]
        assert [bytes(r.body) for r in file] == [b"abc", b"de"]
        assert str(file.damage).endswith(str(file.damage)) and reason.split(":")[0] in str(file.damage)
    assert os.listdir(tmp_path) == ["a"], "the index of a damaged file is not kept"


def test_what_is_left_of_a_broken_gzip_file(tmp_path):
    bodies = [os.urandom(1 << 18) for _ in range(16)]
    write_records(tmp_path / "a", bodies, "tfrecord", "gzip")
    os.truncate(tmp_path / "a", os.path.getsize(tmp_path / "a") - 100)
    place = rf"a: record 15 at byte {15 * ((1 << 18) + 16)}: broken gzip file"
    with pytest.raises(DataError, match=place):
        RecordFile(tmp_path / "a")
    with RecordFile(tmp_path / "a", tolerant=True) as file:
        assert content(file) == bodies[:15]
        assert re.search(place, str(file.damage))
    with pytest.raises(DataError, match=place):
        list(read_records(tmp_path / "a", format="tfrecord"))


def test_a_wrong_checksum_is_an_error_of_that_record_only(tmp_path):
    write_records(tmp_path / "a", [b"first", b"other", b"third"], "tfrecord")
    data = bytearray((tmp_path / "a").read_bytes())
    data[34] ^= 1
    (tmp_path / "a").write_bytes(data)
    with RecordFile(tmp_path / "a") as file:
        assert bytes(file[0].body) == b"first"
        assert bytes(file[2].body) == b"third"
        with pytest.raises(DataError, match="a: record 1 at byte 21: the CRC of the record"):
            file[1]


def test_a_file_that_changes_under_us(tmp_path):
    (tmp_path / "a").write_bytes(framed(b"abc", b"de"))
    with RecordFile(tmp_path / "a") as file:
        with open(tmp_path / "a", "r+b") as other:
            other.write(struct.pack("<q", 1))
        with pytest.raises(DataError, match="record 0 at byte 0: length 1 where the index has 3"):
            file[0]
        os.truncate(tmp_path / "a", 15)
        with pytest.raises(DataError, match="record 1 at byte 11: got 4 of 10 bytes"):
            file[1]


def test_empty_missing_and_a_folder(tmp_path):
    (tmp_path / "a").touch()
    with RecordFile(tmp_path / "a") as file:
        assert len(file) == 0 and list(file) == []
    with pytest.raises(DataError, match="b: the file cannot be opened: No such file"):
        RecordFile(tmp_path / "b")
    with pytest.raises(DataError, match="directory"):
        RecordFile(tmp_path)


def test_many_threads_share_a_file(path):
    with RecordFile(path) as file:
        wrong = []

        def read(start):
            for n in range(start, 300, 4):
                if bytes(file[n].body) != BODIES[n]:
                    wrong.append(n)

        threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_memory_is_flat_over_many_records(tmp_path):
    write_records(tmp_path / "a", (b"x" * 200 for _ in range(20_000)))
    with RecordFile(tmp_path / "a") as file:
        tracemalloc.start()
        try:
            assert all(len(record.body) == 200 for record in file)
            for n in range(0, 20_000, 2):
                file[n]
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
