"""One serialized tf.train.Example to its features, by TensorFlow's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fastnn.tf.dtypes import string, torch_dtype
from oneflow.engine.core.errors import ArgumentError, DataError
from oneflow.engine.core.record.messages import FeatureValue, pick_from_example

_KINDS = {string: "bytes_list", torch.int64: "int64_list", torch.float32: "float_list"}


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature of ``shape``; ``default_value`` where a record has none, and without one that is an error."""

    shape: Any
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class VarLenFeature:
    """A feature of any number of values; its value is a ``SparseTensor``."""

    dtype: Any


@dataclass(frozen=True)
class SparseTensor:
    """What a ``VarLenFeature`` gives: ``values`` at ``indices`` of ``dense_shape``."""

    indices: Tensor
    values: Any
    dense_shape: Tensor


def parse_single_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None, example_names: Any = None
) -> dict[str, Any]:
    """The asked-for features of one Example: tensors, or bytes for a string of shape ()."""
    found = pick_from_example(serialized, tuple(features))
    return {key: _value(key, wanted, found.get(key)) for key, wanted in features.items()}


def _value(key: str, wanted: Any, feature: FeatureValue | None) -> Any:
    if not isinstance(wanted, (FixedLenFeature, VarLenFeature)):
        raise ArgumentError(f"feature {key!r} is asked for by tf.FixedLenFeature or tf.VarLenFeature, got {wanted!r}")
    if wanted.dtype not in _KINDS:
        raise ArgumentError(f"feature {key!r} has the dtype tf.string, tf.int64 or tf.float32, got {wanted.dtype!r}")
    kind = _KINDS[wanted.dtype]
    if feature is not None and feature.kind not in (None, kind):
        raise DataError(f"feature {key!r} is a {feature.kind} in this record and is asked for as a {kind}")
    values = [] if feature is None or feature.kind is None else feature.values
    if isinstance(wanted, VarLenFeature):
        return _sparse(wanted, values)
    if feature is None or feature.kind is None:
        if wanted.default_value is None:
            raise DataError(f"the record has no feature {key!r}, and its FixedLenFeature has no default_value")
        return _default(wanted)
    return _fixed(key, wanted, values)


def _default(wanted: FixedLenFeature) -> Any:
    value = wanted.default_value
    if wanted.dtype is string:
        return value.encode() if isinstance(value, str) else value
    return torch.as_tensor(value, dtype=wanted.dtype).expand(tuple(wanted.shape))


def _fixed(key: str, wanted: FixedLenFeature, values: Any) -> Any:
    count = int(np.prod(wanted.shape, dtype=np.int64)) if len(wanted.shape) else 1
    if len(values) != count:
        raise DataError(
            f"feature {key!r} has {len(values)} values in this record, the shape {list(wanted.shape)} has {count}"
        )
    if wanted.dtype is string:
        return bytes(values[0]) if not len(wanted.shape) else [bytes(value) for value in values]
    return torch.from_numpy(np.array(values)).reshape(tuple(wanted.shape))


def _sparse(wanted: VarLenFeature, values: Any) -> SparseTensor:
    found: Any = (
        [bytes(value) for value in values]
        if wanted.dtype is string
        else torch.from_numpy(np.array(values)).to(wanted.dtype)
    )
    return SparseTensor(torch.arange(len(found))[:, None], found, torch.tensor([len(found)]))


def sparse_tensor_to_dense(
    sp_input: SparseTensor, default_value: Any = 0, validate_indices: bool = True, name: str | None = None
) -> Any:
    """The values of a ``VarLenFeature`` in their order."""
    return sp_input.values


def decode_raw(bytes: Any, out_type: Any, little_endian: bool = True, name: str | None = None) -> Tensor:
    """The bytes of a string as numbers."""
    dtype = torch.empty(0, dtype=torch_dtype(out_type)).numpy().dtype.newbyteorder("<" if little_endian else ">")
    if len(bytes) % dtype.itemsize:
        raise DataError(f"{len(bytes)} bytes are no multiple of {dtype.itemsize}, the size of {out_type}")
    return torch.from_numpy(np.frombuffer(bytes, dtype).astype(dtype.newbyteorder("=")))
