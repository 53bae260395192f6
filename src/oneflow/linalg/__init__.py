"""``flow.linalg``: matrix products, and torch's functions on matrices and vectors."""

from __future__ import annotations

from torch.linalg import cross, diagonal, inv, matrix_norm, norm, vector_norm

from oneflow.compat.spellings import spelled
from oneflow.engine.ir.blob import Blob, emit
from oneflow.engine.ops import matmul as rows

__all__ = ["cross", "diagonal", "inv", "matmul", "matrix_norm", "norm", "vector_norm"]


@spelled("linalg.matmul")
def matmul(
    a: Blob, b: Blob, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0, name: str | None = None
) -> Blob:
    """``alpha`` * a @ b over the last two dimensions, each transposed first where asked for.

    Float blobs of rank 2 or more and one dtype. Either both have the same rank and the same leading dimensions, or b
    has rank 2 and is multiplied with every matrix of a.
    """
    return emit(rows.matmul, a, b, transpose_a=bool(transpose_a), transpose_b=bool(transpose_b), alpha=alpha, name=name)
