"""Parts: many files as one sequence."""

import os
import threading

import pytest

from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.data import dataset
from oneflow.engine.data.dataset import Parts, expand, part_files
from oneflow.engine.data.formats.records import write_records


def bodies(start, count):
    return [f"body {n}".encode() for n in range(start, start + count)]


@pytest.fixture
def folder(tmp_path):
    write_records(tmp_path / "part-0", bodies(0, 5))
    write_records(tmp_path / "part-1", bodies(5, 3), "tfrecord")
    write_records(tmp_path / "part-2", bodies(8, 4), "tfrecord", "gzip")
    return tmp_path


def test_all_parts_as_one_sequence(folder):
    with Parts(expand(folder)) as parts:
        assert len(parts) == 12
        assert parts.counts == [5, 3, 4]
        assert [bytes(parts[n].body) for n in range(12)] == bodies(0, 12)
        assert [bytes(record.body) for record in parts] == bodies(0, 12)
        assert bytes(parts[-1].body) == b"body 11"
        assert (parts[6].path, parts[6].number) == (str(folder / "part-1"), 1)
        assert parts.format == "ofrecord and tfrecord"
        with pytest.raises(IndexError, match="has 12 records"):
            parts[12]


def test_fingerprint_names_sizes_and_counts(folder):
    with Parts([folder / "part-0"]) as parts:
        assert parts.fingerprint() == {"files": [["part-0", os.path.getsize(folder / "part-0"), 5]]}


def test_one_address_is_a_data_set(folder):
    with Parts(folder / "part-1") as one, Parts(str(folder / "part-1")) as other:
        assert len(one) == len(other) == 3


def test_folders(folder):
    assert part_files(folder) == ["part-0", "part-1", "part-2"]
    Parts(expand(folder)).close()
    assert sorted(os.listdir(folder)) == [f"part-{n}{end}" for n in range(3) for end in ("", ".idx")]
    (folder / "part-9.123-0.tmp").touch()
    assert part_files(folder) == ["part-0", "part-1", "part-2"], "indexes and unfinished files are no parts"
    for n in range(3, 11):
        write_records(folder / f"part-{n}", [b"x"])
    assert part_files(folder) == [f"part-{n}" for n in range(11)], "10 comes after 9"
    with Parts.of_folder(folder) as parts:
        assert len(parts) == 12 + 8


def test_a_lost_part_is_an_error(folder):
    os.unlink(folder / "part-1")
    with pytest.raises(DataError, match="parts up to number 2, but none with number 1"):
        part_files(folder)
    with pytest.raises(DataError, match="part-1: the file cannot be opened: No such file"):
        Parts([folder / "part-0", folder / "part-1"])
    with pytest.raises(DataError, match="no file whose name begins with 'train-'"):
        part_files(folder, "train-")
    with pytest.raises(DataError, match="two parts with number 0"):
        os.rename(folder / "part-2", folder / "part-00000")
        part_files(folder)


def test_empty(tmp_path):
    with pytest.raises(ArgumentError, match="at least one part"):
        Parts([])
    (tmp_path / "part-0").touch()
    write_records(tmp_path / "part-1", [b"x"])
    with pytest.raises(DataError, match="part-0: record 0 at byte 0: the file is empty"):
        Parts(expand(tmp_path))
    with Parts(expand(tmp_path), tolerant=True) as parts:
        assert len(parts) == 1
        assert [str(damage).split(": ", 1)[1] for damage in parts.damages][0].startswith(
            "record 0 at byte 0: the file is empty"
        )
    with pytest.raises(DataError, match="not one record"):
        Parts(tmp_path / "part-0", tolerant=True)


def test_tolerant_of_a_file_that_was_cut(folder):
    os.truncate(folder / "part-0", os.path.getsize(folder / "part-0") - 1)
    with pytest.raises(DataError, match="part-0: record 4 at byte 56"):
        Parts(expand(folder))
    with Parts(expand(folder), tolerant=True) as parts:
        assert len(parts) == 11
        assert [bytes(record.body) for record in parts] == bodies(0, 4) + bodies(5, 7)
        assert bytes(parts[4].body) == b"body 5"
        assert "record 4 at byte 56" in str(parts.damages[0])


def test_few_files_are_open_at_a_time(folder, monkeypatch):
    monkeypatch.setattr(dataset, "_OPEN_FILES", 2)
    for n in range(3, 8):
        write_records(folder / f"part-{n}", bodies(100 * n, 2))
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with Parts(expand(folder)) as parts:
        for _ in range(2):
            for n in range(0, len(parts), 3):
                assert bytes(parts[n].body)
        if before:
            assert len(os.listdir("/proc/self/fd")) - before <= 4


def test_after_closing_the_next_record_opens_its_file_again(folder):
    parts = Parts(expand(folder))
    record = parts[0]
    parts.close()
    assert bytes(record.body) == b"body 0"
    assert bytes(parts[5].body) == b"body 5"
    parts.close()
    write_records(folder / "part-1", bodies(0, 9), "tfrecord")
    with pytest.raises(DataError, match="had 3 records, now it has 9"):
        parts[5]


def test_many_threads(folder, monkeypatch):
    monkeypatch.setattr(dataset, "_OPEN_FILES", 1)
    expected = bodies(0, 12)
    wrong = []
    with Parts(expand(folder)) as parts:

        def read():
            for n in list(range(12)) * 20:
                try:
                    if bytes(parts[n].body) != expected[n]:
                        wrong.append(n)
                except Exception as error:
                    wrong.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
