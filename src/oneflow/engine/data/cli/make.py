"""``make``: an image folder, one sub-folder per class, to record files."""

from __future__ import annotations

import argparse
import os

from oneflow.engine.core.errors import DataError
from oneflow.engine.data.cli import options
from oneflow.engine.data.cli.output import Output, shuffled, staged, write_labels, write_parts
from oneflow.engine.data.cli.pictures import Picture, class_folders, file_features, picture_files

HELP = "Make record files from a folder of pictures, one sub-folder a class. Labels count from 0 in the order of the names."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="the pictures: FOLDER/<class>/<picture>")
    parser.add_argument("out", help="the folder to write part files and labels.txt to")
    parser.add_argument(
        "--shuffle-seed",
        type=int,
        metavar="N",
        help="mix the pictures by this seed (default: in the order of the names)",
    )
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    output = Output.of(arguments)
    classes = class_folders(arguments.folder)
    if not classes:
        raise DataError(
            f"{arguments.folder} has no sub-folders; there must be one for each class, with its pictures in it"
        )
    pictures = folder_pictures(arguments.folder, classes)
    if arguments.shuffle_seed is not None:
        pictures = shuffled(
            pictures, lambda picture: os.path.relpath(picture.path, arguments.folder), arguments.shuffle_seed
        )
    with (
        staged(arguments.out, output.prefix, output.overwrite) as folder,
        options.progress(len(pictures), "images") as done,
    ):
        write_parts(folder, pictures, lambda picture: file_features(picture, output.format), output, done)
        write_labels(folder, classes)
    print(f"{len(pictures)} images of {len(classes)} classes in {output.parts} parts: {arguments.out}")
    return 0


def folder_pictures(root: str, classes: list[str]) -> list[Picture]:
    """The pictures of every class. A class without one is an error: its label would never come up."""
    pictures: list[Picture] = []
    for label, name in enumerate(classes):
        files = picture_files(os.path.join(root, name))
        if not files:
            raise DataError(f"{os.path.join(root, name)} has no pictures; take the folder away or fill it")
        pictures += (Picture(path, label, name) for path in files)
    return pictures
