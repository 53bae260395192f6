"""How users declare the inputs of a job."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from oneflow.engine.core.dtype import as_dtype
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.spec import TensorSpec


class TensorDef:
    """A declared input. ``kind`` says what a call gives: one array, a list with one array per device, or lists of
    lists."""

    kind = "array"

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.float32,
        batch_axis: int | None = 0,
        name: str | None = None,
    ) -> None:
        if not isinstance(shape, tuple) or not all(isinstance(n, (int, np.integer)) and n > 0 for n in shape):
            raise ArgumentError(f"an input's shape is a tuple of ints > 0, got {shape!r}")
        shape = tuple(map(int, shape))
        self.spec = TensorSpec(shape, as_dtype(dtype))
        self.batch_axis = _axis(batch_axis, len(shape))
        self.name = name
        self.dynamic = self.kind != "array"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.spec.dtype.torch

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec.shape}, {self.spec.dtype})"


def _axis(batch_axis: int | None, rank: int) -> int | None:
    if batch_axis is None or rank == 0:
        return None
    if not -rank <= batch_axis < rank:
        raise ArgumentError(f"batch_axis {batch_axis} is outside a shape of {rank} dims")
    return batch_axis % rank


class FixedTensorDef(TensorDef):
    """An input of exactly this shape."""


class MirroredTensorDef(TensorDef):
    """An input of at most this shape: a list with one array per device."""

    kind = "list"


class MirroredTensorListDef(TensorDef):
    """An input that is a list, one entry per device, of lists of arrays; the arrays are put together along the first
    dim."""

    kind = "list of lists"


def input_blob_def(
    shape: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    is_dynamic: bool = False,
    batch_axis: int | None = 0,
    distribute: Any = None,
    name: str | None = None,
) -> TensorDef:
    """The earliest form of an input declaration; ``is_dynamic`` lets calls give less than ``shape``."""
    made = FixedTensorDef(shape, dtype, batch_axis, name)
    made.dynamic = is_dynamic
    return made
