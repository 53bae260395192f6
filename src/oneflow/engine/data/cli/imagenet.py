"""``imagenet``: the files of ILSVRC2012 as they are unpacked, to record files."""

from __future__ import annotations

import argparse
import os

from oneflow.engine.core.errors import DataError
from oneflow.engine.data.cli import options
from oneflow.engine.data.cli.output import Output, shuffled, staged, write_labels, write_parts
from oneflow.engine.data.cli.pictures import Picture, class_folders, file_features, picture_files
from oneflow.engine.data.formats.files import join

HELP = (
    "Make record files from ILSVRC2012: FOLDER/train/<synset>/*.JPEG and FOLDER/validation/*.JPEG (or val), the latter "
    "flat with a "
    "file of labels, or in folders too. Labels count from 0 in the order of the synsets."
)
_VALIDATION_FOLDERS = ("validation", "val")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="the folder with train and validation (or val) in it")
    parser.add_argument("out", help="the folder to write train/ and validation/ to")
    parser.add_argument(
        "--split",
        choices=["train", "validation"],
        action="append",
        help="make only this one (default: those that are there)",
    )
    parser.add_argument(
        "--synsets",
        metavar="FILE",
        help="a line 'synset [words]' for each label (default: the folders of train, sorted)",
    )
    parser.add_argument(
        "--labels", metavar="FILE",
        help="for a flat validation folder: a line 'synset' for each picture in the order of their names, or 'name synset' in any order",
    )  # fmt: skip
    parser.add_argument(
        "--shuffle-seed",
        type=int,
        default=0,
        metavar="N",
        help="the order of the training pictures (default: %(default)s)",
    )
    options.add_output(parser, parts=256, suffix_length=5)


def run(arguments: argparse.Namespace) -> int:
    output = Output.of(arguments)
    synsets = _synsets(arguments)
    for split in arguments.split or _splits(arguments.folder):
        pictures = _training(arguments, synsets) if split == "train" else _validation(arguments, synsets)
        target = join(arguments.out, split)
        with (
            staged(target, output.prefix, output.overwrite) as folder,
            options.progress(len(pictures), "images") as done,
        ):
            write_parts(folder, pictures, lambda picture: file_features(picture, output.format), output, done)
            write_labels(folder, [f"{synset} {words}".strip() for synset, words in synsets.items()])
        print(f"{split}: {len(pictures)} images of {len(synsets)} classes in {output.parts} parts: {target}")
    return 0


def _splits(folder: str) -> list[str]:
    splits = [split for split in ("train", "validation") if _split_folder(folder, split)]
    if not splits:
        raise DataError(f"{folder} has neither train nor validation nor val in it")
    return splits


def _split_folder(folder: str, split: str) -> str | None:
    names = ("train",) if split == "train" else _VALIDATION_FOLDERS
    return next((path for name in names if os.path.isdir(path := os.path.join(folder, name))), None)


def _needed(folder: str, split: str) -> str:
    found = _split_folder(folder, split)
    if found is None:
        raise DataError(f"{folder} has no folder {split}")
    return found


def _synsets(arguments: argparse.Namespace) -> dict[str, str]:
    """Synset -> words, in the order of the labels."""
    if arguments.synsets:
        lines = [line.split(maxsplit=1) for line in options.read_lines(arguments.synsets)]
        synsets = {line[0]: line[1] if len(line) > 1 else "" for line in lines}
        if len(synsets) != len(lines):
            raise DataError(f"{arguments.synsets} names a synset twice")
    else:
        train = _split_folder(arguments.folder, "train")
        if train is None:
            raise DataError(f"{arguments.folder} has no folder train to take the synsets from; give --synsets FILE")
        synsets = dict.fromkeys(class_folders(train), "")
    if not synsets:
        raise DataError(f"there are no synsets in {arguments.synsets or arguments.folder}")
    return synsets


def _training(arguments: argparse.Namespace, synsets: dict[str, str]) -> list[Picture]:
    root = _needed(arguments.folder, "train")
    pictures = _in_folders(root, synsets)
    return shuffled(pictures, lambda picture: os.path.relpath(picture.path, root), arguments.shuffle_seed)


def _validation(arguments: argparse.Namespace, synsets: dict[str, str]) -> list[Picture]:
    root = _needed(arguments.folder, "validation")
    if class_folders(root):
        return _in_folders(root, synsets)
    if not arguments.labels:
        raise DataError(f"{root} is flat: give --labels FILE with the synset of each picture")
    files = picture_files(root, recursive=False)
    label = {synset: number for number, synset in enumerate(synsets)}
    return [_picture(path, synset, synsets, label) for path, synset in zip(files, _labels(arguments.labels, files))]


def _in_folders(root: str, synsets: dict[str, str]) -> list[Picture]:
    found = class_folders(root)
    missing = [synset for synset in synsets if synset not in found]
    if missing:
        raise DataError(f"{root} has no folder for {len(missing)} of {len(synsets)} synsets: {', '.join(missing[:5])}")
    label = {synset: number for number, synset in enumerate(synsets)}
    return [_picture(path, name, synsets, label) for name in found for path in picture_files(os.path.join(root, name))]


def _picture(path: str, synset: str, words: dict[str, str], label: dict[str, int]) -> Picture:
    if synset not in label:
        raise DataError(f"{path} is of {synset!r}, which is none of the {len(label)} synsets")
    return Picture(path, label[synset], words[synset], synset)


def _labels(path: str, files: list[str]) -> list[str]:
    """The synset of each file."""
    lines = [line.split() for line in options.read_lines(path)]
    if all(line[0].isdigit() for line in lines):
        raise DataError(
            f"{path} has numbers; which synsets they mean differs from list to list. "
            "Give the file with the synset of each picture, or lines 'name synset'"
        )
    if all(len(line) == 2 for line in lines):
        by_name = dict(lines)
        missing = [name for name in map(os.path.basename, files) if name not in by_name]
        if missing:
            raise DataError(f"{path} says nothing about {len(missing)} pictures, the first {missing[0]}")
        return [by_name[os.path.basename(file)] for file in files]
    if any(len(line) != 1 for line in lines) or len(lines) != len(files):
        raise DataError(f"{path} has {len(lines)} lines for {len(files)} pictures; it needs one synset for each")
    return [line[0] for line in lines]
