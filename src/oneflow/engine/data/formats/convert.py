"""The features of one record format as features of the other, value for value.

    OFRecord -> Example   int32_list becomes int64_list; double_list becomes float_list where every value is a float32
    Example -> OFRecord   int64_list stays int64_list; the keys that are named become int32_list where every value fits

What cannot be said without changing a value is a ``DataError``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.messages import DTYPES, FeatureValue

Features = Mapping[str, FeatureValue]


def for_format(features: Features, format: str, int32: Collection[str] = ()) -> dict[str, FeatureValue]:
    """``features`` as the format "ofrecord" or "tfrecord" has them."""
    return as_example(features) if format == "tfrecord" else as_record(features, int32)


def as_example(features: Features) -> dict[str, FeatureValue]:
    """Features with the kinds of tf.train.Example."""
    wider = {"int32_list": "int64_list", "double_list": "float_list"}
    return {key: _as_kind(key, value, wider.get(value.kind or "", value.kind)) for key, value in features.items()}


def as_record(features: Features, int32: Collection[str] = ()) -> dict[str, FeatureValue]:
    """Features of an OFRecord; int64 lists with a key in ``int32`` become int32 lists."""
    return {key: _as_kind(key, value, "int32_list" if key in int32 else value.kind) for key, value in features.items()}


def _as_kind(key: str, feature: FeatureValue, kind: str | None) -> FeatureValue:
    if kind is None or kind == feature.kind:
        return feature
    if feature.kind not in ("int32_list", "int64_list", "double_list") or (
        feature.kind == "double_list" and kind != "float_list"
    ):
        raise DataError(f"feature {key!r} is a {feature.kind} and cannot become a {kind}")
    with np.errstate(over="ignore"):
        values = feature.values.astype(DTYPES[kind])
    same = (values == feature.values) | ((values != values) & (feature.values != feature.values))
    if not same.all():
        raise DataError(f"feature {key!r} has the value {feature.values[~same][0]!r}, which a {kind} cannot hold")
    return FeatureValue(kind, values)
