"""``flow.onnx.load_weights``: the initializers of an ONNX model onto the session's variables."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneflow.engine.checkpoint.adopt import Loaded, Origin, Table, adopt
from oneflow.engine.core.errors import CheckpointError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.onnx.builder import TENSOR_TYPES
from oneflow.engine.onnx.model import PRODUCER
from oneflow.engine.onnx.packages import onnx_package

_DTYPES = {number: dtype for dtype, number in TENSOR_TYPES.items()}


@entry
def load_weights(
    path: str | os.PathLike[str],
    job: Callable[..., Any] | None = None,
    table: Table = None,
    strict: bool = True,
    cast: bool = False,
) -> Loaded:
    """Sets variables from the initializers of an ONNX model, whoever wrote it.

    The arguments are those of ``flow.checkpoint.from_torch``. A model that ``export`` wrote needs no table.
    Initializers that are no weights, such as shapes and single numbers, count only where the table names them.
    """
    onnx = onnx_package("flow.onnx.load_weights")
    model = _read(onnx, Path(path))
    is_ours = model.producer_name == PRODUCER
    values = {
        tensor.name: _value(onnx, tensor, os.fspath(path))
        for tensor in model.graph.initializer
        if tensor.data_type in _DTYPES
    }
    extras = frozenset(name for name, value in values.items() if not _is_weight(name, value, is_ours))
    return adopt(Origin(repr(os.fspath(path)), values, is_ours, extras), table, job, strict, cast)


def _is_weight(name: str, value: torch.Tensor, is_ours: bool) -> bool:
    """Of our own models, whose constants are named after ops with a "/", the variables; of others the float arrays."""
    return "/" not in name if is_ours else value.dtype.is_floating_point and value.dim() > 0


def _read(onnx: Any, path: Path) -> Any:
    if not path.is_file():
        raise CheckpointError(f"there is no file {str(path)!r} to load weights from")
    try:
        return onnx.load(str(path))
    except Exception as error:  # protobuf's own errors have no public class
        raise CheckpointError(f"{str(path)!r} cannot be read as an ONNX model: {error}") from None


def _value(onnx: Any, tensor: Any, path: str) -> torch.Tensor:
    try:
        if min(tensor.dims, default=0) < 0:
            raise ValueError("a dim is below 0")
        array = np.array(onnx.numpy_helper.to_array(tensor))
    except Exception as error:  # of numpy and of onnx, for data that is too short, too long or elsewhere
        dims = ", ".join(map(str, tensor.dims))
        raise CheckpointError(
            f"{path!r}: the initializer {tensor.name!r} of dims ({dims}) does not hold such a tensor: {error}"
        ) from None
    dtype = _DTYPES[tensor.data_type]
    return torch.from_numpy(array.view(np.int16)).view(dtype) if dtype == torch.bfloat16 else torch.from_numpy(array)
