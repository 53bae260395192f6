"""All emitters of aten ops by overload, and why others have none."""

from __future__ import annotations

from oneflow.engine.onnx.aten import (
    activation,
    attention,
    binary,
    conv,
    create,
    index,
    loss,
    matmul,
    norm,
    reduce,
    resample,
    rnn,
    shape,
    sort,
    unary,
)
from oneflow.engine.onnx.aten.family import AtenEmitters, AtenRow

FAMILIES: dict[str, AtenEmitters] = {
    "activation": activation.EMITTERS,
    "attention": attention.EMITTERS,
    "binary": binary.EMITTERS,
    "conv": conv.EMITTERS,
    "create": create.EMITTERS,
    "index": index.EMITTERS,
    "loss": loss.EMITTERS,
    "matmul": matmul.EMITTERS,
    "norm": norm.EMITTERS,
    "reduce": reduce.EMITTERS,
    "resample": resample.EMITTERS,
    "rnn": rnn.EMITTERS,
    "shape": shape.EMITTERS,
    "sort": sort.EMITTERS,
    "unary": unary.EMITTERS,
}
ROWS: dict[str, AtenRow] = {name: row for family in FAMILIES.values() for name, row in family.rows.items()}
REASONS: dict[str, str] = {name: reason for family in FAMILIES.values() for name, reason in family.reasons.items()}
