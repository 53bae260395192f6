"""Paths and addresses under one interface, and files that a thread writes."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from libai.utils import file_utils
from libai.utils.file_io import (
    HTTPURLHandler,
    LazyPath,
    NativePathHandler,
    OneDrivePathHandler,
    PathHandler,
    PathManagerBase,
    PathManagerFactory,
    file_lock,
    get_cache_dir,
)
from libai.utils.non_blocking_io import NonBlockingIOManager


def content(file):
    with file:
        return file.read()


def test_files_of_this_machine(tmp_path):
    paths, at = PathManagerBase(), lambda name: str(tmp_path / name)
    paths.mkdirs(at("a/b"))
    with paths.open(at("a/x"), "w") as file:
        file.write("text")
    assert (
        paths.isfile(at("a/x"))
        and paths.isdir(at("a/b"))
        and not paths.exists(at("y"))
        and sorted(paths.ls(at("a"))) == ["b", "x"]
    )
    assert (
        paths.copy(at("a/x"), at("y"))
        and content(paths.open(at("y"))) == "text"
        and paths.get_local_path("file://" + at("y")) == at("y")
    )
    assert (
        paths.copy_from_local(at("y"), at("a/x"), overwrite=True)
        and paths.symlink(at("y"), at("link"))
        and os.readlink(at("link")) == at("y")
    )
    assert paths.mv(at("y"), at("z")) and not paths.exists(at("y"))
    paths.rm(at("z"))
    paths.set_cwd(str(tmp_path / "a"))
    assert content(paths.opent("x")) == "text" and paths.exists("b")
    paths.set_cwd(None)
    assert not paths.exists("x")


def test_files_that_a_thread_writes_are_whole_after_the_join(tmp_path):
    paths, done = PathManagerBase(), []
    for buffering in (-1, 3):
        with paths.opena(str(tmp_path / "x"), "w", buffering, callback_after_file_close=lambda: done.append(1)) as file:
            for i in range(100):
                file.write(f"{i} ")
        assert paths.async_join(str(tmp_path / "x")) and (tmp_path / "x").read_text() == "".join(
            f"{i} " for i in range(100)
        )
    assert done == [1, 1] and paths.async_close()
    executor = ThreadPoolExecutor(1)
    manager = NonBlockingIOManager(executor=executor)
    raw = open(tmp_path / "y", "wb")
    with manager.get_non_blocking_io("y", raw, lambda: done.append(2)) as file:
        assert file.write(bytearray(b"abcdef")) == 6 and file.seekable() and not file.readable() and file.writable()
        file.seek(1)
        file.write(b"X")
        file.truncate(4)
        with pytest.raises(io.UnsupportedOperation, match="cannot tell where it is"):
            file.tell()
    assert manager.join() and (tmp_path / "y").read_bytes() == b"aXcd"
    executor.shutdown()
    assert done == [1, 1, 2]
    broken = open(tmp_path / "z", "wb")
    file = manager.get_non_blocking_io("z", broken)
    broken.close()
    file.write(b"lost")
    assert not manager.join("z") and manager.join()  # said once


class Shelf(PathHandler):
    def _get_supported_prefixes(self):
        return ["shelf://"]

    def _open(self, path, mode="r", buffering=-1, **kwargs):
        return io.StringIO(path)


def test_handlers_by_what_an_address_begins_with(tmp_path, monkeypatch):
    paths = PathManagerBase()
    paths.register_handler(Shelf())
    assert content(paths.open("shelf://a")) == "shelf://a"
    monkeypatch.setenv("LIBAI_CACHE", str(tmp_path))
    assert get_cache_dir() == str(tmp_path) and get_cache_dir("x") == "x"
    monkeypatch.setattr(file_utils, "download_file", lambda path, url: Path(path).write_text(url))
    paths.register_handler(HTTPURLHandler())
    paths.register_handler(OneDrivePathHandler())
    assert (
        paths.get_local_path("https://host/a/b.txt") == str(tmp_path / "host" / "a" / "b.txt")
        and content(paths.open("https://host/a/b.txt")) == "https://host/a/b.txt"
    )
    assert paths.get_local_path("https://1drv.ms/u/s!abc").startswith(str(tmp_path / "api.onedrive.com"))
    assert (
        OneDrivePathHandler().create_one_drive_direct_download("https://1drv.ms/u/s!abc")
        == "https://api.onedrive.com/v1.0/shares/u!aHR0cHM6Ly8xZHJ2Lm1zL3UvcyFhYmM/root/content"
    )


def test_paths_that_are_made_when_they_are_needed(tmp_path):
    asked = []
    path = LazyPath(lambda: asked.append(1) or str(tmp_path))
    assert not asked and os.listdir(path) == [] and str(path) == str(tmp_path) and asked == [1]
    with file_lock(str(tmp_path / "x")):
        assert (tmp_path / "x.lock").exists()
    assert (
        PathManagerFactory.get() is PathManagerFactory.get()
        and PathManagerFactory.get("one") is not PathManagerFactory.get()
    )
    PathManagerFactory.remove("one")


def refused(call, message, kind=ValueError):
    with pytest.raises(kind, match=message):
        call()


def test_what_cannot_be_done_is_said(tmp_path):
    paths, here = PathManagerBase(), str(tmp_path / "x")
    Path(here).write_text("x")
    paths.register_handler(Shelf())
    refused(lambda: paths.copy(here, here), "is there already; give overwrite=True")
    refused(lambda: paths.mv(here, here), "is there already; remove it first")
    refused(lambda: paths.set_cwd("nowhere"), "there is no folder 'nowhere' to work in")
    refused(lambda: paths.opena(here, "r"), "opena writes; .* mode 'r'")
    with open(os.devnull) as reading:
        refused(
            lambda: NonBlockingIOManager().get_non_blocking_io("x", reading),
            "only files that are written are written by a thread",
        )
    refused(
        lambda: paths.exists(here, deeply=True),
        "NativePathHandler takes no argument 'deeply'; set_strict_kwargs_checking",
        TypeError,
    )
    paths.set_strict_kwargs_checking(False)
    assert paths.exists(here, deeply=True)
    for what in ("exists", "isfile", "isdir", "ls", "mkdirs", "rm", "get_local_path"):
        refused(lambda: getattr(paths, what)("shelf://a"), "Shelf cannot .* shelf://a", NotImplementedError)  # noqa: B023
    for what in ("copy", "mv", "symlink"):
        refused(lambda: getattr(paths, what)("shelf://a", here), "Shelf cannot .* shelf://a", NotImplementedError)  # noqa: B023
    refused(lambda: paths.copy_from_local(here, "shelf://a"), "Shelf cannot write shelf://a", NotImplementedError)
    refused(lambda: Shelf()._set_cwd("a"), "Shelf cannot work in a", NotImplementedError)

    class Other(Shelf, NativePathHandler):
        pass

    refused(lambda: paths.register_handler(Other()), "'shelf://' belongs to Shelf already; give allow_override=True")
    paths.register_handler(Other(), allow_override=True)
    paths.register_handler(HTTPURLHandler())
    refused(lambda: paths.open("https://host/x", "w"), "can be read, not opened with mode 'w'")
    refused(lambda: os.fspath(LazyPath(lambda: 3)), "the function of a LazyPath gives a path, got 3")
    refused(lambda: PathManagerFactory.remove("none"), "there is no path manager 'none'")
    refused(lambda: PathHandler()._open("x"), "PathHandler cannot open x", NotImplementedError)
