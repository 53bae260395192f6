"""Local and remote files: reading by position, writing beside."""

import errno
import os

import fsspec
import pytest

from oneflow.engine.core.errors import DataError
from oneflow.engine.data.dataset import Parts, expand
from oneflow.engine.data.formats.files import join, list_files, make_folder, open_source, written_beside
from oneflow.engine.data.formats.index import RecordFile
from oneflow.engine.data.formats.records import read_records, write_records


@pytest.fixture(params=["local", "file", "memory"])
def folder(request, tmp_path):
    """A folder by each kind of address."""
    if request.param == "memory":
        yield "memory://data-tests"
        fsspec.filesystem("memory").store.clear()
        fsspec.filesystem("memory").pseudo_dirs[:] = [""]
        return
    yield str(tmp_path) if request.param == "local" else f"file://{tmp_path}"


BODIES = [b"abc" * n for n in range(1, 40)]


@pytest.mark.parametrize(("format", "compression"), [("ofrecord", None), ("tfrecord", None), ("tfrecord", "gzip")])
def test_records_anywhere(folder, format, compression):
    make_folder(folder)
    for part in range(2):
        write_records(join(folder, f"part-{part}"), BODIES, format, compression)
    assert list_files(folder) == ["part-0", "part-1"]
    path = join(folder, "part-0")
    assert [bytes(r.body) for r in read_records(path, format=None)] == BODIES
    with RecordFile(path) as file:
        assert [bytes(file[n].body) for n in range(len(file))] == BODIES
    assert list_files(folder) == ["part-0", "part-0.idx", "part-1"]
    with RecordFile(path) as file:  # with the kept index
        assert bytes(file[20].body) == BODIES[20]
    with Parts(expand(folder)) as parts:
        assert [bytes(parts[n].body) for n in range(len(parts))] == BODIES * 2
        assert [name for name, _, _ in parts.fingerprint()["files"]] == ["part-0", "part-1"]


def test_a_changed_remote_file_gets_a_new_index():
    write_records("memory://changes/part-0", BODIES)
    assert len(RecordFile("memory://changes/part-0")) == len(BODIES)
    write_records("memory://changes/part-0", BODIES[:7])
    assert len(RecordFile("memory://changes/part-0")) == 7
    fsspec.filesystem("memory").store.clear()


def test_reading_by_position(folder):
    make_folder(folder)
    with written_beside(join(folder, "a")) as file:
        file.write(b"0123456789")
    source = open_source(join(folder, "a"))
    assert source.size == 10
    assert source.read_at(3, 4) == b"3456"
    assert source.read_at(8, 4) == b"89"
    assert source.read_at(10, 4) == b""
    with source.stream() as stream:
        assert stream.read() == b"0123456789"
    source.close()


def test_what_is_missing(folder):
    with pytest.raises(DataError, match="nowhere.*: the file cannot be opened: No such file"):
        open_source(join(folder, "nowhere"))


def test_an_address_of_an_unknown_kind():
    with pytest.raises(DataError, match="nosuch://x"):
        open_source("nosuch://x")


def test_a_file_appears_complete_or_not_at_all(folder):
    make_folder(folder)
    path = join(folder, "a")
    with written_beside(path) as file:
        file.write(b"old")
    with pytest.raises(RuntimeError, match="half way"), written_beside(path) as file:
        file.write(b"new")
        raise RuntimeError("half way")
    source = open_source(path)
    assert source.read_at(0, 9) == b"old"
    source.close()
    assert list_files(folder) == ["a"]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be written: No such file"), written_beside(tmp_path / "no" / "a"):
        pass
    with pytest.raises(DataError, match="cannot be read: No such file"):
        list_files(tmp_path / "no")


def test_a_full_disk(tmp_path):
    with pytest.raises(DataError, match="a cannot be written: No space left"), written_beside(tmp_path / "a"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []
