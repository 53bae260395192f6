"""ImageNet 2012 as it lies on disk: ``<root>/train/<wnid>/*.JPEG`` and ``<root>/val/<wnid>/*.JPEG``."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import torch

from flowvision.datasets.folder import ImageFolder
from flowvision.datasets.utils import MissingDataError, extract_archive, verify_str_arg
from oneflow.engine.core.errors import AbsentNameError, DataError

META_FILE = "meta.bin"
TRAIN_ARCHIVE = "ILSVRC2012_img_train.tar"
VAL_ARCHIVE = "ILSVRC2012_img_val.tar"


class ImageNet(ImageFolder):
    """The pictures of a ``split``, "train" or "val". Archives in ``root`` are unpacked: that of the training pictures
    as it is, that of the validation pictures where ``meta.bin`` says their classes. With ``meta.bin``, ``classes`` are
    names and ``class_to_idx`` has each of them; ``wnids`` are the folders.

    It cannot be downloaded: it has to be asked for at image-net.org.
    """

    def __init__(self, root: str | os.PathLike[str], split: str = "train", download: Any = None, **kwargs: Any) -> None:
        self.split = verify_str_arg(split, "split", ("train", "val"))
        base = Path(os.path.expanduser(os.fspath(root)))
        if not (base / split).is_dir():
            _unpack(base, split, bool(download))
        super().__init__(base / split, **kwargs)
        self.root = os.fspath(base)
        self.wnids = self.classes
        self.wnid_to_idx = self.class_to_idx
        if (base / META_FILE).exists():
            names, _ = load_meta_file(base)
            self.classes = [names[wnid] for wnid in self.wnids]  # type: ignore[misc]
            self.class_to_idx = {name: number for number, synonyms in enumerate(self.classes) for name in synonyms}

    @property
    def split_folder(self) -> str:
        """The folder of the split."""
        return os.path.join(self.root, self.split)

    def extra_repr(self) -> str:
        return f"Split: {self.split}"


def load_meta_file(
    root: str | os.PathLike[str], file: str | None = None
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The names of each wnid, and the wnid of each validation picture, of the file ``meta.bin``; nothing that it holds
    is executed."""
    path = Path(root) / (file or META_FILE)
    if not path.exists():
        raise MissingDataError(
            f"{path} is not there; it has the names of the classes and the classes of the validation pictures"
        )
    try:
        names, wnids = torch.load(path, weights_only=True)
    except Exception as error:  # damaged files fail in many ways
        raise DataError(f"{path} is no meta file of ImageNet: {error}") from None
    return names, wnids


def parse_devkit_archive(root: str | os.PathLike[str], file: str | None = None) -> None:
    """Refused: the kit's tables are MATLAB structures, which nothing here reads. ``meta.bin`` is what the original
    makes of them."""
    kit = Path(root) / (file or "ILSVRC2012_devkit_t12.tar.gz")
    raise AbsentNameError(
        f"{kit} is not read here: its tables are MATLAB structures. Put meta.bin into {root}: torch.save(({{wnid: "
        f"names}}, wnids of the validation pictures), path)"
    )


def parse_train_archive(root: str | os.PathLike[str], file: str | None = None, folder: str = "train") -> None:
    """Unpacks the archive of the training pictures, which has an archive for each class; complete or not there at
    all."""
    archive, target = Path(root) / (file or TRAIN_ARCHIVE), Path(root) / folder
    beside = target.with_name(f"{target.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    extract_archive(archive, beside)
    for packed in sorted(beside.glob("*.tar")):
        extract_archive(packed, beside / packed.stem, remove_finished=True)
    os.replace(beside, target)


def parse_val_archive(
    root: str | os.PathLike[str], file: str | None = None, wnids: list[str] | None = None, folder: str = "val"
) -> None:
    """Unpacks the archive of the validation pictures into a folder for each class; ``wnids`` has the class of each, by
    default as ``meta.bin`` says."""
    classes = load_meta_file(root)[1] if wnids is None else wnids
    archive, target = Path(root) / (file or VAL_ARCHIVE), Path(root) / folder
    beside = target.with_name(f"{target.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    extract_archive(archive, beside)
    pictures = sorted(path for path in beside.iterdir() if path.is_file())
    if len(pictures) != len(classes):
        raise DataError(f"{archive} has {len(pictures)} pictures, there are classes for {len(classes)}")
    for wnid in set(classes):
        (beside / wnid).mkdir()
    for picture, wnid in zip(pictures, classes):
        os.replace(picture, beside / wnid / picture.name)
    os.replace(beside, target)


def _unpack(root: Path, split: str, download: bool) -> None:
    archive = root / (TRAIN_ARCHIVE if split == "train" else VAL_ARCHIVE)
    if not archive.exists() or not tarfile.is_tarfile(archive):
        asked = "ImageNet cannot be downloaded, it has to be asked for at image-net.org; " if download else ""
        raise MissingDataError(
            f"{asked}put the pictures into {root / split}/<wnid>/*.JPEG, or {archive.name} into {root}"
        )
    (parse_train_archive if split == "train" else parse_val_archive)(root)
