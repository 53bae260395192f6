"""``flow.layers``: numbers for categories."""

from __future__ import annotations

from oneflow.array import categorical_ordinal_encode
from oneflow.engine.core.number import whole
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.variable import get_variable
from oneflow.initializer import zeros_initializer
from oneflow.layers import _build as build
from oneflow.nn import _arguments as arguments


def categorical_ordinal_encoder(
    input_tensor: Blob, capacity: int, hash_precomputed: bool = True, name: str | None = None
) -> Blob:
    """Each value as a number: 0 stays 0, the others get 1, 2 ... in the order in which they first appear, in this step
    or an earlier one.

    Variables: ``<name>-Table`` (2 x capacity,) in the dtype of the input and ``<name>-Size`` (1,); they are saved with
    the others. More values than the capacity end the run.
    """
    name = build.layer_name("CategoricalOrdinalEncoder", name)
    dtype, room = arguments.blob("input_tensor", input_tensor).dtype, whole("capacity", capacity, above=0)
    table = get_variable(f"{name}-Table", (2 * room,), dtype, zeros_initializer(dtype), trainable=False)
    size = get_variable(f"{name}-Size", (1,), dtype, zeros_initializer(dtype), trainable=False)
    return categorical_ordinal_encode(table, size, input_tensor, hash_precomputed, name=f"{name}_encode")
