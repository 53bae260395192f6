"""All emitters by row name, and why the other rows have none."""

from __future__ import annotations

from oneflow.onnx.family import Emitter
from oneflow.onnx.rows import (
    activation,
    array,
    conv,
    create,
    dropout,
    elementwise,
    image,
    index,
    loss,
    matmul,
    norm,
    pool,
    reduce,
    sample,
    scatter,
    sort,
    structure,
    unary,
)

_FAMILIES = (
    activation.EMITTERS,
    array.EMITTERS,
    conv.EMITTERS,
    create.EMITTERS,
    dropout.EMITTERS,
    elementwise.EMITTERS,
    image.EMITTERS,
    index.EMITTERS,
    loss.EMITTERS,
    matmul.EMITTERS,
    norm.EMITTERS,
    pool.EMITTERS,
    reduce.EMITTERS,
    sample.EMITTERS,
    scatter.EMITTERS,
    sort.EMITTERS,
    structure.EMITTERS,
    unary.EMITTERS,
)
EMITTERS: dict[str, Emitter] = {name: emitter for family in _FAMILIES for name, emitter in family.rows.items()}
REASONS: dict[str, str] = {name: reason for family in _FAMILIES for name, reason in family.reasons.items()}
