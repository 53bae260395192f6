"""Pictures in record files: OFRecord or TFRecord parts in a folder."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any

from PIL import Image

from flowvision.datasets.vision import VisionDataset
from oneflow.data import Loader, Parts
from oneflow.engine.core.errors import DataError, nearest


class RecordFolder(VisionDataset):
    """Pictures and labels of the part files in ``root`` whose names begin with ``prefix``: (PIL picture of RGB, or what
    ``transform`` makes of it; label).

    ``image_key`` and ``label_key`` are the features with the encoded picture and the class. ``loader`` reads the same
    files in batches, ahead of the step.
    """

    format: str | None = None

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        image_key: str = "encoded",
        label_key: str = "class/label",
        prefix: str = "part-",
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.image_key, self.label_key, self.prefix = image_key, label_key, prefix
        self._parts: Parts | None = self._opened()

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if self._parts is None:
            self._parts = self._opened()
        features = self._parts[index].features
        with Image.open(io.BytesIO(self._feature(features, self.image_key, index)[0])) as stored:
            picture: Any = stored.convert("RGB")
        target = int(self._feature(features, self.label_key, index)[0])
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, target if self.target_transform is None else self.target_transform(target)

    def __len__(self) -> int:
        return self._count

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": None}  # a worker opens its own files

    def loader(self, batch_size: int, decoders: Any, **settings: Any) -> Loader:
        """An ``oneflow.data.Loader`` of these files; ``decoders`` and settings are its own, such as
        ``ImageDecoder(self.image_key, ...)``."""
        return Loader(self._opened(), batch_size, decoders, **settings)

    def _opened(self) -> Parts:
        parts = Parts.of_folder(self.root, self.prefix, self.format)
        self._count = len(parts)
        return parts

    def _feature(self, features: Any, key: str, index: int) -> Any:
        if key not in features or features[key].kind is None or not len(features[key].values):
            raise DataError(
                f"{self.root}: record {index} has no feature {key!r}, it has "
                f"{sorted(features)}.{nearest(key, features)}"
            )
        return features[key].values


class OFRecordFolder(RecordFolder):
    """OFRecord files; see ``RecordFolder``."""

    format = "ofrecord"


class TFRecordFolder(RecordFolder):
    """TFRecord files of Examples; see ``RecordFolder``. TensorFlow's tools name features "image/encoded" and
    "image/class/label"."""

    format = "tfrecord"
