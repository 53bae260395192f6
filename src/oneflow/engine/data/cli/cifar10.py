"""``cifar10``: the binary batches to record files.

A batch file is records of 3073 bytes: the label, then the red, green and blue planes of 32 x 32 pixels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.data.cli.arrays import Split, add_arguments, write_splits

HELP = "Make record files of PNG pictures from the binary version of CIFAR-10."
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILES = ("test_batch.bin",)
_PIXELS = (3, 32, 32)
_ROW = 1 + 3 * 32 * 32


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "data_batch_1.bin to data_batch_5.bin and test_batch.bin")


def run(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    return write_splits(
        arguments, {"train": read_batches(folder, TRAIN_FILES), "test": read_batches(folder, TEST_FILES)}, NAMES
    )


def read_batches(folder: Path, names: tuple[str, ...]) -> Split:
    """Pixels of shape (n, 32, 32, 3) and labels of shape (n,)."""
    rows = np.concatenate([_rows(folder / name) for name in names])
    return np.ascontiguousarray(rows[:, 1:].reshape(-1, *_PIXELS).transpose(0, 2, 3, 1)), rows[:, 0]


def _rows(path: Path) -> np.ndarray:
    try:
        data = path.read_bytes()
    except OSError as error:
        hint = "; this is the Python version, take the binary one" if path.with_suffix("").exists() else ""
        raise DataError(f"{path} cannot be read: {error.strerror}{hint}") from None
    if not data or len(data) % _ROW:
        raise DataError(
            f"{path}: {len(data)} bytes are no multiple of {_ROW}; the file was cut short or is no CIFAR-10 batch"
        )
    rows = np.frombuffer(data, np.uint8).reshape(-1, _ROW)
    if rows[:, 0].max() > 9:
        wrong = int(np.argmax(rows[:, 0] > 9))
        raise DataError(f"{path}: record {wrong} at byte {wrong * _ROW}: label {rows[wrong, 0]} is more than 9")
    return rows
