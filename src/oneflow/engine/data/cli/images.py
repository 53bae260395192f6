"""Which features of a record are pictures."""

from __future__ import annotations

from collections.abc import Mapping

from oneflow.engine.core.record.messages import FeatureValue

_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def encoded_images(features: Mapping[str, FeatureValue]) -> dict[str, bytes]:
    """The features that are named ``encoded`` or ``.../encoded``, or hold one value that begins as JPEG and PNG do."""
    return {
        key: bytes(feature.values[0])
        for key, feature in features.items()
        if feature.kind == "bytes_list"
        and len(feature.values) == 1
        and (is_image_name(key) or bytes(feature.values[0][:8]).startswith(_MAGIC))
    }


def is_image_name(key: str) -> bool:
    return key.rsplit("/", 1)[-1] == "encoded"


def image_key(features: Mapping[str, FeatureValue]) -> str | None:
    """The first feature that is a picture."""
    return next(iter(encoded_images(features)), None)
