"""Files of the network that are kept: fetched once, checked, and found without a network. No test uses one: addresses
are files or refused."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import pytest

from libai.utils import file_utils
from libai.utils.download import download


@pytest.fixture
def source(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "data.bin").write_bytes(b"some bytes")
    return (tmp_path / "there" / "data.bin").as_uri()


MD5 = hashlib.md5(b"some bytes", usedforsecurity=False).hexdigest()


def test_a_file_is_fetched_once_under_its_own_name(tmp_path, source):
    folder = str(tmp_path / "here")
    path = file_utils.get_data_from_cache(source, folder, md5=MD5)
    assert (
        Path(path) == tmp_path / "here" / "data.bin"
        and Path(path).read_bytes() == b"some bytes"
        and file_utils.get_md5(path) == MD5
    )
    Path(path).write_bytes(b"changed")
    assert Path(file_utils.get_data_from_cache(source, folder)).read_bytes() == b"changed"
    assert (
        Path(file_utils.get_data_from_cache(source, folder, md5=MD5)).read_bytes() == b"some bytes"
    )  # what is not right is fetched again
    Path(path).write_bytes(b"changed")
    assert Path(file_utils.get_data_from_cache(source, folder, force_download=True)).read_bytes() == b"some bytes"
    with pytest.raises(ValueError, match=f"has the MD5 {MD5}, expected 0"):
        file_utils.get_data_from_cache(source, folder, md5="0")
    assert (
        download(source, folder, filename="other") == str(tmp_path / "here" / "other")
        and download(source + "?x", folder) == path
    )
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["data.bin", "other"]


def test_a_file_is_kept_by_address_and_version(tmp_path, source, monkeypatch):
    monkeypatch.setenv("LIBAI_CACHE", str(tmp_path / "kept"))
    path = Path(file_utils.cached_path(source))
    assert path.name == hashlib.sha256(source.encode()).hexdigest() and path.read_bytes() == b"some bytes"
    assert (
        file_utils.filename_to_url(path.name) == (source, None)
        and json.loads(Path(f"{path}.json").read_text())["url"] == source
    )
    (tmp_path / "there" / "data.bin").unlink()
    assert file_utils.cached_path(source) == str(path)  # as it was, when the address does not answer
    assert file_utils.url_to_filename("a/b.h5", "1").endswith(".h5") and file_utils.url_to_filename(
        "a", "1"
    ) != file_utils.url_to_filename("a", "2")
    assert file_utils.cached_path(path) == str(path)
    into = io.BytesIO()
    file_utils.http_get(path.as_uri(), into)
    assert into.getvalue() == b"some bytes"


def test_what_cannot_be_fetched_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("ONEFLOW_OFFLINE", "1")
    with pytest.raises(
        FileNotFoundError, match="cannot be fetched .*ONEFLOW_OFFLINE is set.*; put the file at .*data.bin"
    ):
        file_utils.get_data_from_cache("http://127.0.0.1:1/data.bin", str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="has no earlier version of it"):
        file_utils.get_from_cache("http://127.0.0.1:1/data.bin", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no file 'nothing.txt'"):
        file_utils.cached_path("nothing.txt")
    with pytest.raises(ValueError, match="is neither a file nor an address of http"):
        file_utils.cached_path("gopher://x/y")
    with pytest.raises(FileNotFoundError, match="it was not fetched into this folder"):
        file_utils.filename_to_url("abc", str(tmp_path))
    assert file_utils.split_s3_path("s3://bucket/a/b") == ("bucket", "a/b")
    with pytest.raises(ValueError, match="s3://bucket/name, got 's3://bucket'"):
        file_utils.split_s3_path("s3://bucket")
    with pytest.raises(NotImplementedError, match="S3 is not read here; fetch b of a with its own tools"):
        file_utils.cached_path("s3://a/b", str(tmp_path))
    with pytest.raises(NotImplementedError, match="S3 is not read here"):
        file_utils.s3_get("s3://a/b", io.BytesIO())


def test_an_answer_of_404_is_a_file_that_is_not_there():
    class Refused(Exception):
        def __init__(self, code):
            self.response = {"Error": {"Code": code}}

    @file_utils.s3_request
    def ask(url, code):
        raise Refused(code)

    with pytest.raises(FileNotFoundError, match="there is no s3://a/b"):
        ask("s3://a/b", "404")
    with pytest.raises(Refused):
        ask("s3://a/b", "403")
