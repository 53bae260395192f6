"""Why ``oneflow.engine.ops.dynamic`` has no emitters."""

from __future__ import annotations

from oneflow.engine.onnx.family import Emitters

EMITTERS = Emitters()
_ROWS = "its result has as many rows as the data says; export what it is computed from, and go on in numpy"
for _name in (
    "argwhere",
    "dynamic_filled",
    "experimental.unique_with_counts",
    "experimental.indexed_slices_reduce_sum",
):
    EMITTERS.cannot(_name, _ROWS)
EMITTERS.cannot("categorical_ordinal_encode", "an ONNX model has no variables that a step could write")
