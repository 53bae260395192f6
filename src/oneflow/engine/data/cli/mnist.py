"""``mnist``: the four idx files, also of sets in the same form such as Fashion-MNIST, to record files."""

from __future__ import annotations

import argparse

from oneflow.engine.data.cli.arrays import add_arguments, write_splits
from oneflow.engine.data.formats.mnist_files import read_mnist

HELP = "Make record files of PNG pictures from MNIST's four idx files, gzipped or not."
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser, "train-images-idx3-ubyte and the three other files")


def run(arguments: argparse.Namespace) -> int:
    files = read_mnist(arguments.folder)
    splits = {"train": (files.train_images, files.train_labels), "test": (files.test_images, files.test_labels)}
    return write_splits(arguments, splits, NAMES)
