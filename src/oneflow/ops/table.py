"""All op rows by name."""

from __future__ import annotations

from itertools import chain

from oneflow.ops import (
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
from oneflow.ops.row import Op

_FAMILIES = (
    activation.ROWS,
    array.ROWS,
    conv.ROWS,
    create.ROWS,
    dropout.ROWS,
    elementwise.ROWS,
    image.ROWS,
    index.ROWS,
    loss.ROWS,
    matmul.ROWS,
    norm.ROWS,
    pool.ROWS,
    reduce.ROWS,
    sample.ROWS,
    scatter.ROWS,
    sort.ROWS,
    structure.ROWS,
    unary.ROWS,
)
ROWS: dict[str, Op] = {op.name: op for op in chain.from_iterable(_FAMILIES)}
