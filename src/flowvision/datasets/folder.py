"""Folders of samples: one folder a class."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from PIL import Image

from flowvision.datasets.utils import MissingDataError
from flowvision.datasets.vision import VisionDataset
from oneflow.engine.core.errors import ArgumentError

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename: str, extensions: str | tuple[str, ...]) -> bool:
    """Whether a name ends in one of the extensions, in letters of any size."""
    return filename.lower().endswith(extensions if isinstance(extensions, str) else tuple(extensions))


def is_image_file(filename: str) -> bool:
    """Whether a name is that of a picture."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """The folders in a folder, sorted: they are the classes; and the number of each."""
    try:
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    except OSError as error:
        raise MissingDataError(
            f"{os.fspath(directory)} cannot be read: {error.strerror}; it is a folder with one folder for each class"
        ) from None
    if not classes:
        raise MissingDataError(
            f"Couldn't find any class folder in {os.fspath(directory)}; put the samples of each class into a folder of "
            f"its name there"
        )
    return classes, {name: number for number, name in enumerate(classes)}


def make_dataset(
    directory: str | os.PathLike[str],
    class_to_idx: dict[str, int] | None = None,
    extensions: str | tuple[str, ...] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
) -> list[tuple[str, int]]:
    """Path and class of every sample, in the order of their names. A class without samples is an error."""
    if (extensions is None) == (is_valid_file is None):
        raise ArgumentError("give extensions or is_valid_file, one of the two, to say which files are samples")
    valid = (
        is_valid_file if is_valid_file is not None else lambda path: has_file_allowed_extension(path, extensions or ())
    )
    classes = find_classes(directory)[1] if class_to_idx is None else class_to_idx
    samples: list[tuple[str, int]] = []
    without = []
    for name, number in sorted(classes.items()):
        of_class = [
            os.path.join(folder, file)
            for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True))
            for file in sorted(files)
            if valid(os.path.join(folder, file))
        ]
        samples += [(path, number) for path in of_class]
        if not of_class:
            without.append(name)
    if without:
        hint = (
            f" Supported extensions are: {extensions if isinstance(extensions, str) else ', '.join(extensions)}"
            if extensions is not None
            else ""
        )
        raise MissingDataError(
            f"Found no valid file for the classes {', '.join(without)} in {os.fspath(directory)}.{hint}"
        )
    return samples


class DatasetFolder(VisionDataset):
    """Samples ``<root>/<class>/**/<file>``, read by ``loader``: (sample, class number). Those whose names end in
    ``extensions``, or for which ``is_valid_file(path)`` holds, count. ``samples`` and ``targets`` list them."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        loader: Callable[[str], Any],
        extensions: str | tuple[str, ...] | None = None,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = make_dataset(self.root, self.class_to_idx, extensions, is_valid_file)
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory: str) -> tuple[list[str], dict[str, int]]:
        """The classes and their numbers; a class of one's own may find them elsewhere."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        sample = self.loader(path)
        if self.transform is not None:
            sample = self.transform(sample)
        return sample, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return len(self.samples)


def pil_loader(path: str) -> Image.Image:
    """A picture of RGB, read by PIL."""
    with open(path, "rb") as file, Image.open(file) as picture:
        return picture.convert("RGB")


def accimage_loader(path: str) -> Image.Image:
    """The same picture as :func:`pil_loader`; the accimage library, which the original asks here, has no part in this
    package."""
    return pil_loader(path)


def default_loader(path: str) -> Any:
    """How pictures are read: by PIL."""
    return pil_loader(path)


class ImageFolder(DatasetFolder):
    """Pictures ``<root>/<class>/**/<file>``: (PIL picture of RGB, or what ``transform`` makes of it; class number).
    ``imgs`` lists them."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file)
        self.imgs = self.samples
