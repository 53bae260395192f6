"""Finding, fetching and reading MNIST. No test uses the network: mirrors are a server on this machine."""

import gzip
import hashlib
import http.server
import socket
import struct
import threading
import time

import numpy as np
import pytest

from oneflow import data as fdata
from oneflow.engine.core.errors import ArgumentError, DataError, UnsupportedError
from oneflow.engine.data.formats import download, mnist_files
from oneflow.engine.data.formats.idx import read_idx
from oneflow.engine.data.formats.mnist_files import (
    SHA256,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    find_mnist,
    read_mnist,
)

NAMES = list(SHA256)


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    """Nothing of the user's own environment counts."""
    monkeypatch.setenv("ONEFLOW_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ONEFLOW_MNIST_DIR", raising=False)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.tobytes()


def small(folder, images=20, tests=10, zipped=True):
    """A folder with the four files, random pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for names, n in ((NAMES[:2], images), (NAMES[2:], tests)):
        arrays = (rng.integers(0, 256, (n, 28, 28), np.uint8), rng.integers(0, 10, n, np.uint8))
        for name, array in zip(names, arrays, strict=True):
            data = gzip.compress(idx(array), mtime=0) if zipped else idx(array)
            (folder / (name if zipped else name.removesuffix(".gz"))).write_bytes(data)
    return folder


# ------------------------------------------------------------------ idx files


def test_read_idx(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a").write_bytes(idx(array))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array), mtime=0))
    for name in ("a", "a.gz"):
        np.testing.assert_array_equal(read_idx(tmp_path / name, 3), array)


GOOD = idx(np.zeros((2, 28, 28), np.uint8))
BROKEN = [
    ("x", GOOD[:7], "7 bytes, less than the 16"),
    ("x", b"\x00\x00\x08\x01" + GOOD[4:], "wrong magic number 0x00000801"),
    ("x", b"\x03\x08\x00\x00" + GOOD[4:], "begins with 0x00000803"),
    ("x", GOOD[:-1], "2 x 28 x 28 bytes, 1567 follow"),
    ("x", GOOD + b"\x00", "1569 follow"),
    ("x.gz", GOOD, "broken gzip file"),
    ("x.gz", gzip.compress(GOOD, mtime=0)[:-12], "broken gzip file"),
    ("x.gz", gzip.compress(GOOD, mtime=0)[:12] + b"\xff" * 20, "broken gzip file"),
    ("x.gz", gzip.compress(GOOD[:200], mtime=0), "184 follow"),
]


@pytest.mark.parametrize(("name", "data", "reason"), BROKEN)
def test_broken_idx_files(tmp_path, name, data, reason):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=reason) as error:
        read_idx(tmp_path / name, 3)
    assert str(tmp_path / name) in str(error.value)


def test_a_missing_idx_file(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_idx(tmp_path / "x", 3)


# ------------------------------------------------------------------ folders


def test_a_named_folder_comes_first(tmp_path, monkeypatch, capsys):
    named, other = small(tmp_path / "named"), small(tmp_path / "other", zipped=False)
    monkeypatch.setenv("ONEFLOW_MNIST_DIR", str(other))
    assert find_mnist(named) == named
    assert find_mnist() == other
    assert read_mnist(other).train_images.shape == (20, 28, 28)
    assert capsys.readouterr().err == ""


def test_a_named_folder_must_be_complete(tmp_path):
    small(tmp_path)
    (tmp_path / TEST_LABELS).unlink()
    with pytest.raises(DataError, match="no file t10k-labels-idx1-ubyte.gz"):
        find_mnist(tmp_path)
    with pytest.raises(DataError, match="no file"):
        find_mnist(tmp_path / "nowhere")


def test_the_cache_is_used(tmp_path, capsys):
    cache = small(tmp_path / "cache" / "oneflow-torch" / "mnist")
    assert find_mnist() == cache
    assert find_mnist(cache=small(tmp_path / "mine")) == tmp_path / "mine"
    assert capsys.readouterr().err == ""


def test_counts_and_labels_are_checked(tmp_path):
    small(tmp_path)
    (tmp_path / TRAIN_LABELS).write_bytes(gzip.compress(idx(np.zeros(19, np.uint8))))
    with pytest.raises(DataError, match="has 20 images, train-labels-idx1-ubyte.gz 19 labels"):
        read_mnist(tmp_path)
    (tmp_path / TRAIN_LABELS).write_bytes(gzip.compress(idx(np.full(20, 10, np.uint8))))
    with pytest.raises(DataError, match="the label 10"):
        read_mnist(tmp_path)


def test_the_shipped_subset_and_its_notice(capsys):
    folder = find_mnist()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "shipped subset of MNIST, 5000 training and 1000 test images (ONEFLOW_OFFLINE is set)" in err
    assert "ONEFLOW_MNIST_DIR" in err
    mnist = read_mnist(folder)
    assert mnist.train_images.shape == (5000, 28, 28)
    assert mnist.test_images.shape == (1000, 28, 28)
    assert np.bincount(mnist.train_labels).min() > 400
    assert np.bincount(mnist.test_labels).min() > 70


def test_load_mnist(tmp_path):
    small(tmp_path)
    raw = read_mnist(tmp_path)
    (images, labels), (test_images, test_labels) = fdata.load_mnist(5, 10, folder=tmp_path)
    assert (images.shape, labels.shape) == ((4, 5, 1, 28, 28), (4, 5))
    assert (test_images.shape, test_labels.shape) == ((1, 10, 1, 28, 28), (1, 10))
    assert (images.dtype, labels.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(images.reshape(20, 28, 28), raw.train_images.astype(np.float32) / 255)
    np.testing.assert_array_equal(labels.ravel(), raw.train_labels)
    (nhwc, _), _ = fdata.load_mnist(5, 10, "NHWC", folder=tmp_path)
    np.testing.assert_array_equal(nhwc, images.transpose(0, 1, 3, 4, 2))


def test_load_mnist_refuses_what_it_cannot_do(tmp_path):
    small(tmp_path)
    with pytest.raises(ArgumentError, match="must divide the 20 images without rest, got 7"):
        fdata.load_mnist(7, 10, folder=tmp_path)
    with pytest.raises(ArgumentError, match="'NCHW' or 'NHWC', got 'NHW'"):
        fdata.load_mnist(5, 10, "NHW", folder=tmp_path)
    with pytest.raises(UnsupportedError, match="folder="):
        fdata.load_mnist(5, 10, url="http://localhost/mnist.npz")


# ------------------------------------------------------------------ downloading


@pytest.fixture
def server(tmp_path):
    """A folder that is served over HTTP, its address, and the checksums of its files."""
    folder = small(tmp_path / "served")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,))
        thread.start()
        sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in NAMES}
        yield folder, f"http://127.0.0.1:{httpd.server_port}/", sums
        httpd.shutdown()
        thread.join()


NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture
def online(server, monkeypatch):
    _, address, sums = server
    monkeypatch.delenv("ONEFLOW_OFFLINE")
    monkeypatch.setattr(mnist_files, "MIRRORS", (NOWHERE, address))
    monkeypatch.setattr(mnist_files, "SHA256", sums)


def test_download_fills_the_cache(server, online, tmp_path, capsys):
    cache = tmp_path / "cache" / "oneflow-torch" / "mnist"
    assert find_mnist() == cache
    assert sorted(path.name for path in cache.iterdir()) == sorted(NAMES)
    assert (cache / TRAIN_IMAGES).read_bytes() == (server[0] / TRAIN_IMAGES).read_bytes()
    assert capsys.readouterr().err == ""


def test_a_wrong_checksum_is_not_kept(server, online, tmp_path, capsys):
    (server[0] / TRAIN_LABELS).write_bytes(b"something else")
    find_mnist()
    cache = tmp_path / "cache" / "oneflow-torch" / "mnist"
    assert [path.name for path in cache.iterdir()] == [TRAIN_IMAGES]
    err = capsys.readouterr().err
    assert "shipped subset" in err
    assert "expected" in err
    with pytest.raises(DataError, match="the file was not kept"):
        download.fetch(server[1] + TRAIN_LABELS, tmp_path / "x", server[2][TRAIN_LABELS])
    assert not (tmp_path / "x").exists()


def test_a_file_missing_on_the_mirror(server, online, capsys):
    (server[0] / TRAIN_IMAGES).unlink()
    assert find_mnist() != server[0]
    assert "404" in capsys.readouterr().err


@pytest.mark.quiet
def test_no_network_is_seen_quickly(online, monkeypatch, capsys):
    monkeypatch.setattr(mnist_files, "MIRRORS", (NOWHERE, "http://host.invalid/"))
    start = time.monotonic()
    find_mnist()
    assert time.monotonic() - start < 10
    assert "no mirror can be reached" in capsys.readouterr().err


@pytest.mark.quiet
def test_a_mirror_that_never_answers_is_given_up():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        start = time.monotonic()
        assert (
            download.answering([NOWHERE, *[f"http://127.0.0.1:{silent.getsockname()[1]}/"] * 3], "x", seconds=1) == []
        )
        assert time.monotonic() - start < 2.5  # one after the other they would be waited for 3 seconds


def test_the_mirror_that_answers_comes_first(server):
    _, address, _ = server
    assert download.answering([NOWHERE, address], TEST_LABELS)[0] == address
