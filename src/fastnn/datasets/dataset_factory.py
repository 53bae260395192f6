"""Data sets by name: ``datasets_map``, to which a program may add its own, and ``get_dataset_iterator``."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fastnn.datasets import cifar10, flowers, mnist
from fastnn.errors import FlagError
from fastnn.flags import FLAGS, Flags
from fastnn.tf import stand_in
from fastnn.utils.dataset_utils import DatasetIterator, MockIterator, RecordIterator, Share
from oneflow.engine.core.errors import nearest

datasets_map: dict[str, Any] = {"cifar10": cifar10, "flowers": flowers, "mnist": mnist}
"""Name -> a module with ``parse_fn(example) -> (image, label)``, such a function, or the path of a file that has
one."""

MOCK = "mock"


def get_parse_fn(name: str) -> Callable[[Any], tuple[Any, Any]]:
    """The ``parse_fn`` of a data set: of ``datasets_map``, or of the file ``datasets/<name>.py`` beside the program or
    where it runs."""
    found = datasets_map.get(name) or _file_of(name)
    if found is None:
        raise FlagError(
            f"--dataset_name={name}: there is no such data set.{nearest(name, [*datasets_map, MOCK])} "
            f"There are {', '.join(sorted([*datasets_map, MOCK]))}. Add it to datasets_map, or write "
            f"datasets/{name}.py with parse_fn(example)"
        )
    if isinstance(found, (str, os.PathLike)):
        found = _executed(Path(found))
    function = (
        found.get("parse_fn")
        if isinstance(found, dict)
        else getattr(found, "parse_fn", None if isinstance(found, ModuleType) else found)
    )
    if not callable(function):
        raise FlagError(f"--dataset_name={name}: its file has no function parse_fn(example) that gives (image, label)")
    return function


def _file_of(name: str) -> Path | None:
    folders = [Path(sys.argv[0]).resolve().parent, Path.cwd()]
    return next((path for folder in folders if (path := folder / "datasets" / f"{name}.py").is_file()), None)


def _executed(path: Path) -> dict[str, Any]:
    """The names that a data set file defines. A word of TensorFlow's that is not there raises from the file's own
    line."""
    if not path.is_file():
        raise FlagError(f"the data set file {path} does not exist")
    with stand_in.in_file():
        return runpy.run_path(str(path))


def get_dataset_iterator(
    dataset_name: str,
    train_image_size: int,
    preprocessing_fn: Callable[..., Any] | None = None,
    data_sources: Sequence[str] | None = None,
    reader: Any = None,
    *,
    share: Share | None = None,
    is_training: bool = True,
    flags: Flags = FLAGS,
) -> DatasetIterator:
    """Batches of a data set, (images NHWC float32, labels int64), by ``get_next()`` or in a loop.

    ``data_sources`` are the files, by default those that the flags name; ``share`` is this worker's part of them, by
    default all. In training records are mixed and repeated ``num_epochs`` times; otherwise they come once and in order.
    """
    stand_in.withdraw()
    if reader is not None:
        raise FlagError("reader= chose a reader class in FastNN; files are TFRecord here, leave it out")
    if not dataset_name:
        raise FlagError(f"--dataset_name needs a name, such as {', '.join(sorted([*datasets_map, MOCK]))}")
    if dataset_name == MOCK:
        return MockIterator(train_image_size, flags.batch_size)
    parse_fn = get_parse_fn(dataset_name)
    if data_sources is None:
        data_sources = data_files(dataset_name, is_training, flags)
    return RecordIterator(
        data_sources, parse_fn, preprocessing_fn, train_image_size, share or Share(), is_training, flags
    )


BUILT_IN_FILES = {
    "cifar10": (["cifar10_train.tfrecord"], ["cifar10_test.tfrecord"]),
    "mnist": (["mnist_train.tfrecord"], ["mnist_test.tfrecord"]),
    "flowers": tuple(
        [f"flowers_{split}_{i:05d}-of-00005.tfrecord" for i in range(5)] for split in ("train", "validation")
    ),
}
"""The files of the data sets that are there: for training and for evaluation."""


def data_files(dataset_name: str, is_training: bool = True, flags: Flags = FLAGS) -> list[str]:
    """The paths of a data set's files: those of ``--train_files`` (``--eval_files``), or the data set's own; sorted."""
    if dataset_name == MOCK:
        return []
    flag = "train_files" if is_training else "eval_files"
    named = getattr(flags, flag)
    if flags.dataset_dir is None:
        raise FlagError(f"--dataset_dir names the folder with the files of {dataset_name}; it is not set")
    if named:
        names = [name for name in named.split(",") if name]
    elif dataset_name in BUILT_IN_FILES:
        names = BUILT_IN_FILES[dataset_name][0 if is_training else 1]
    else:
        raise FlagError(f"--{flag} names the files of {dataset_name}, with commas between them; it is not set")
    return sorted(os.path.join(flags.dataset_dir, name) for name in names)


def __getattr__(name: str) -> Any:
    if name == "dataset_map":  # the manual's spelling
        return datasets_map
    raise AttributeError(name)
