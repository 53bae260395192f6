"""Data sets that come as arrays: each split to its own folder of PNG records."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.cli import options
from oneflow.engine.data.cli.output import Output, shuffled, staged, write_labels, write_parts
from oneflow.engine.data.cli.pictures import pixel_features
from oneflow.engine.data.formats.files import join

Split = tuple[np.ndarray, np.ndarray]  # pixels, labels


def add_arguments(parser: argparse.ArgumentParser, files: str) -> None:
    parser.add_argument("folder", help=f"the folder with {files}")
    parser.add_argument("out", help="the folder to write train/ and test/ to")
    parser.add_argument(
        "--names", metavar="FILE", help="the names of the classes, one per line in the order of the labels"
    )
    parser.add_argument(
        "--shuffle-seed", type=int, metavar="N", help="mix the images by this seed (default: as they come)"
    )
    options.add_output(parser)


def write_splits(arguments: argparse.Namespace, splits: Mapping[str, Split], names: Sequence[str]) -> int:
    output = Output.of(arguments)
    if arguments.names:
        names = options.read_lines(arguments.names)
    for split, (pixels, labels) in splits.items():
        _check_labels(split, labels, names)
        _write_split(arguments, output, split, pixels, labels, names)
    return 0


def _write_split(
    arguments: argparse.Namespace,
    output: Output,
    split: str,
    pixels: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
) -> None:
    order: Sequence[int] = range(len(labels))
    if arguments.shuffle_seed is not None:
        order = shuffled(order, lambda number: f"{split}-{number}", arguments.shuffle_seed)

    def features(number: int) -> dict[str, FeatureValue]:
        label = int(labels[number])
        return pixel_features(pixels[number], f"{split}-{number:05d}.png", label, names[label], output.format)

    target = join(arguments.out, split)
    with staged(target, output.prefix, output.overwrite) as folder, options.progress(len(order), "images") as done:
        write_parts(folder, order, features, output, done)
        write_labels(folder, names)
    print(f"{split}: {len(order)} images of {len(names)} classes in {output.parts} parts: {target}")


def _check_labels(split: str, labels: np.ndarray, names: Sequence[str]) -> None:
    if labels.size and int(labels.max()) >= len(names):
        raise DataError(f"{split} has the label {int(labels.max())}, there are names for {len(names)} classes")
