"""Where the MNIST files are: a folder that is named, the cache, a mirror on the network, or the subset shipped with the
package."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oneflow.engine.core.errors import ArgumentError, DataError, UnsupportedError
from oneflow.engine.data.formats.download import answering, fetch_all
from oneflow.engine.data.formats.idx import read_idx

TRAIN_IMAGES = "train-images-idx3-ubyte.gz"
TRAIN_LABELS = "train-labels-idx1-ubyte.gz"
TEST_IMAGES = "t10k-images-idx3-ubyte.gz"
TEST_LABELS = "t10k-labels-idx1-ubyte.gz"

SHA256 = {
    TRAIN_IMAGES: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    TRAIN_LABELS: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    TEST_IMAGES: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    TEST_LABELS: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://raw.githubusercontent.com/fgnt/mnist/master/",
    "http://yann.lecun.com/exdb/mnist/",
)

SUBSET = Path(__file__).parent / "mnist"
_FOLDER_VARIABLE = "ONEFLOW_MNIST_DIR"
_OFFLINE_VARIABLE = "ONEFLOW_OFFLINE"


@dataclass(frozen=True)
class Mnist:
    """Images are uint8 of shape (n, 28, 28), labels uint8 of shape (n,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def find_mnist(folder: str | os.PathLike[str] | None = None, cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder to read MNIST from.

    In this order: ``folder``; the environment variable ONEFLOW_MNIST_DIR; ``cache`` (by default ``oneflow-torch/mnist``
    in the user's cache directory), filled from the network unless ONEFLOW_OFFLINE is set; the subset of 5000 + 1000
    images that comes with the package, which is said on stderr. A folder that was named must have all four files.
    """
    named = folder if folder is not None else os.environ.get(_FOLDER_VARIABLE)
    if named:
        return _complete(Path(named))
    cached = Path(cache) if cache is not None else cache_folder()
    if all((cached / file).exists() for file in SHA256):
        return cached
    reason = _download(cached, MIRRORS, SHA256)
    if reason is None:
        return cached
    print(
        f"oneflow: using the shipped subset of MNIST, 5000 training and 1000 test images ({reason}); "
        f"for all of it set {_FOLDER_VARIABLE} to a folder with the four idx files",
        file=sys.stderr,
    )
    return SUBSET


def read_mnist(folder: str | os.PathLike[str]) -> Mnist:
    """The four idx files of a folder, gzipped or not, checked against each other."""
    root = Path(folder)
    return Mnist(*_pair(root, TRAIN_IMAGES, TRAIN_LABELS), *_pair(root, TEST_IMAGES, TEST_LABELS))


def load_mnist(
    train_batch_size: int = 100,
    test_batch_size: int = 100,
    data_format: str = "NCHW",
    url: str | None = None,
    hash_check: str | None = None,
    out_dir: str | os.PathLike[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """MNIST in batches: ``((train_images, train_labels), (test_images, test_labels))``.

    Images are float32 from 0 to 1 of shape (batches, batch, 1, 28, 28), for "NHWC" (batches, batch, 28, 28, 1); labels
    int32 of shape (batches, batch). The batch sizes must divide the number of images. ``folder`` and ``out_dir`` (where
    downloaded files are kept) are ``find_mnist``'s ``folder`` and ``cache``. ``url`` and ``hash_check`` chose another
    archive once; use ``folder``.
    """
    if url is not None or hash_check is not None:
        raise UnsupportedError(
            "load_mnist has its own list of mirrors; for other data give folder=, with the four idx files in it"
        )
    mnist = read_mnist(find_mnist(folder, out_dir))
    return (
        in_batches(mnist.train_images, mnist.train_labels, train_batch_size, data_format),
        in_batches(mnist.test_images, mnist.test_labels, test_batch_size, data_format),
    )


def in_batches(
    images: np.ndarray, labels: np.ndarray, batch_size: int, data_format: str = "NCHW", offset: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Images as ``(x - offset) / 255`` and labels, in batches; see ``load_mnist`` for the shapes."""
    if data_format not in ("NCHW", "NHWC"):
        raise ArgumentError(f"data_format is 'NCHW' or 'NHWC', got {data_format!r}")
    if type(batch_size) is not int or batch_size < 1 or len(images) % batch_size:
        raise ArgumentError(f"the batch size must divide the {len(images)} images without rest, got {batch_size!r}")
    row = (1, *images.shape[1:]) if data_format == "NCHW" else (*images.shape[1:], 1)
    pixels = (images.astype(np.float32) - np.float32(offset)) / np.float32(255)
    return pixels.reshape(-1, batch_size, *row), labels.astype(np.int32).reshape(-1, batch_size)


def cache_folder() -> Path:
    """The folder that downloaded files are kept in."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(root) / "oneflow-torch" / "mnist"


def _download(folder: Path, mirrors: Sequence[str], sums: Mapping[str, str]) -> str | None:
    """Fills ``folder``; None if that worked, otherwise why not."""
    if os.environ.get(_OFFLINE_VARIABLE):
        return f"{_OFFLINE_VARIABLE} is set"
    working = answering(mirrors, TEST_LABELS)
    if not working:
        return "no mirror can be reached"
    return fetch_all(folder, working, sums)


def _complete(folder: Path) -> Path:
    for file in SHA256:
        _existing(folder, file)
    return folder


def _existing(folder: Path, file: str) -> Path:
    for name in (file, file.removesuffix(".gz")):
        if (folder / name).exists():
            return folder / name
    raise DataError(f"MNIST folder {folder} has no file {file}, gzipped or not; it must have {', '.join(SHA256)}")


def _pair(folder: Path, images_file: str, labels_file: str) -> tuple[np.ndarray, np.ndarray]:
    images = read_idx(_existing(folder, images_file), 3)
    labels = read_idx(_existing(folder, labels_file), 1)
    if len(images) != len(labels):
        raise DataError(
            f"{folder}: {images_file} has {len(images)} images, {labels_file} {len(labels)} labels; they are not of "
            f"one set"
        )
    if labels.size and labels.max() > 9:
        raise DataError(f"{folder}: {labels_file} has the label {labels.max()}, labels are digits from 0 to 9")
    return images, labels
