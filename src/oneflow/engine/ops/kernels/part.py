"""What one rank computes where the classes of a softmax, or the rows of a table, are split over ranks.

``start`` is where the rank's slice begins in a dim that has ``whole`` elements over all ranks. Sums that ranks share
are float32 where the values are of half precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_CACHED = 2**17  # elements that are worked on while they are in the cache


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def shifted(x: Tensor, top: Tensor) -> Tensor:
    """Scores from which the largest of their row was taken."""
    return _wide(x) - top


def exponential_sum(x: Tensor, top: Tensor, dim: int) -> Tensor:
    """The sum over ``dim`` of the exponentials of scores from which the largest of their row was taken; some rows at a
    time, in the cache."""
    if x.dim() != 2 or dim != 1:
        return shifted(x, top).exp_().sum(dim, keepdim=True)
    rows = max(1, _CACHED // max(1, x.shape[1]))
    return torch.cat(
        [shifted(part, own).exp_().sum(1, keepdim=True) for part, own in zip(x.split(rows), top.split(rows))]
    )


def normalised(powers: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
    """Softmax from exponentials and their sum over all classes."""
    return (powers / total).to(dtype)


def log_normalised(x: Tensor, top: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
    """The logarithm of softmax from scores, the largest of each row, and the sum of the exponentials of what is left
    over all classes."""
    return (_wide(x) - (top + total.log())).to(dtype)


def wide_sum(x: Tensor, dim: int) -> Tensor:
    return _wide(x).sum(dim, keepdim=True)


def product_sum(x: Tensor, y: Tensor, dim: int) -> Tensor:
    return (_wide(x) * y).sum(dim, keepdim=True)


def softmax_gradient(gradient: Tensor, output: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
    """``total`` is the sum over all classes of gradient · output."""
    return ((gradient - total) * output).to(dtype)


def log_softmax_gradient(gradient: Tensor, output: Tensor, total: Tensor, dtype: torch.dtype) -> Tensor:
    """``total`` is the sum over all classes of the gradient."""
    return (gradient - _wide(output).exp() * total).to(dtype)


def locate(index: Tensor, start: int, size: int, whole: int) -> tuple[Tensor, Tensor]:
    """Indices of a whole dim as indices of a slice of it, and which of them lie in the slice; the others become 0.

    An index outside the whole dim fails on every rank, as it does where nothing is split.
    """
    if index.numel() and type(index) is Tensor:  # a plan's tensors have no values
        lowest, highest = (int(bound) for bound in index.aminmax())
        if lowest < 0 or highest >= whole:
            raise IndexError(
                f"index {lowest if lowest < 0 else highest} is out of bounds for a dimension of size {whole}"
            )
    inside = (index >= start) & (index < start + size)
    return torch.where(inside, index - start, 0), inside


def _labels(target: Tensor, ignore_index: int, start: int, size: int, whole: int) -> tuple[Tensor, Tensor]:
    counted = target != ignore_index
    local, inside = locate(torch.where(counted, target, 0), start, size, whole)
    return local.unsqueeze(1), inside & counted


def nll_loss(log_p: Tensor, target: Tensor, ignore_index: int, start: int, whole: int) -> tuple[Tensor, Tensor]:
    """-log_p[label] of the rows whose label is one of this rank's classes, 0 of the others; and the op's unused second
    output."""
    labels, mine = _labels(target, ignore_index, start, log_p.shape[1], whole)
    return torch.where(mine, -log_p.gather(1, labels).squeeze(1), 0), log_p.new_zeros(())


def nll_loss_gradient(
    gradient: Tensor, log_p: Tensor, target: Tensor, ignore_index: int, start: int, whole: int
) -> Tensor:
    """The gradient of ``nll_loss`` for this rank's classes; ``gradient`` is one number, or one for each row."""
    labels, mine = _labels(target, ignore_index, start, log_p.shape[1], whole)
    return torch.zeros_like(log_p).scatter_(1, labels, torch.where(mine, -gradient, 0).unsqueeze(1))


def label_weight(
    target: Tensor, weight: Tensor | None, ignore_index: int, start: int, size: int, whole: int, dtype: torch.dtype
) -> Tensor:
    """How much the labels of this rank's ``size`` classes weigh that are not ignored: their number, or the sum of their
    classes' ``weight``."""
    labels, mine = _labels(target, ignore_index, start, size, whole)
    found = mine if weight is None else torch.where(mine, _wide(weight)[labels.squeeze(1)], 0)
    return found.sum(dtype=torch.promote_types(dtype, torch.float32))


def nll_loss_sum(log_p: Tensor, target: Tensor, ignore_index: int, start: int, whole: int) -> Tensor:
    """The sum of the losses of the rows whose label is one of this rank's classes."""
    return _wide(nll_loss(log_p, target, ignore_index, start, whole)[0]).sum()


def _along(mask: Tensor, dim: int, rank: int) -> Tensor:
    """A mask of one dim, shaped to broadcast along ``dim`` of a tensor of ``rank`` dims."""
    return mask.view([-1 if d == dim else 1 for d in range(rank)])


def gather(x: Tensor, dim: int, index: Tensor, start: int, whole: int) -> Tensor:
    """``gather`` from a slice along ``dim``; 0 for what lies in other slices."""
    local, inside = locate(index, start, x.shape[dim], whole)
    return torch.where(inside, x.gather(dim, local), 0)


def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor, start: int, whole: int) -> Tensor:
    """``scatter_add`` to a slice along ``dim``, of what belongs to it."""
    local, inside = locate(index, start, x.shape[dim], whole)
    addend = source[tuple(slice(size) for size in index.shape)]
    return x.scatter_add(dim, local, torch.where(inside, addend, 0))


def index_select(x: Tensor, dim: int, index: Tensor, start: int, whole: int) -> Tensor:
    """``index_select`` from a slice along ``dim``; rows of 0 for those of other slices."""
    local, inside = locate(index, start, x.shape[dim], whole)
    rows = x.index_select(dim, local)
    return rows.masked_fill_(_along(~inside, dim, x.dim()), 0)


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float, start: int, whole: int) -> Tensor:
    """``index_add`` to a slice along ``dim``, of the rows that belong to it."""
    local, inside = locate(index, start, x.shape[dim], whole)
    rows = source.masked_fill(_along(~inside, dim, x.dim()), 0)
    return x.index_add(dim, local, rows, alpha=alpha)


def embedding(weight: Tensor, index: Tensor, start: int, whole: int) -> Tensor:
    """The rows of a slice of a table; rows of 0 for those of other slices."""
    local, inside = locate(index, start, weight.shape[0], whole)
    return torch.where(inside.unsqueeze(-1), torch.nn.functional.embedding(local, weight), 0)


def embedding_gradient(gradient: Tensor, index: Tensor, padding: int, rows: int, start: int, whole: int) -> Tensor:
    """The gradient of the ``rows`` of a slice of a table; that of the row ``padding`` is 0."""
    local, inside = locate(index, start, rows, whole)
    counted = inside & (index != padding) if padding >= 0 else inside
    addend = torch.where(counted.unsqueeze(-1), gradient, 0)
    return gradient.new_zeros((rows, gradient.shape[-1])).index_add_(0, local.flatten(), addend.flatten(0, -2))


def _locate_all(
    x: Tensor, indices: Sequence[Tensor], starts: Sequence[int], wholes: Sequence[int]
) -> tuple[list[Tensor], Tensor]:
    """``locate`` for indices of the first dims of x, which may count from the end; which elements lie in all the
    slices."""
    local, insides = [], []
    for index, start, size, whole in zip(indices, starts, x.shape, wholes):
        index, inside = locate(torch.where(index < 0, index + whole, index), start, size, whole)
        local.append(index)
        insides.append(inside)
    return local, torch.stack(torch.broadcast_tensors(*insides)).all(0)


def index(x: Tensor, indices: Sequence[Tensor], starts: Sequence[int], wholes: Sequence[int]) -> Tensor:
    """``x[indices]`` for indices of the first dims, some of which are split; 0 for what lies in other slices."""
    local, inside = _locate_all(x, indices, starts, wholes)
    found = x[tuple(local)]
    return found.masked_fill_(~inside.view(*inside.shape, *[1] * (found.dim() - inside.dim())), 0)


def index_put(
    x: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool, starts: Sequence[int], wholes: Sequence[int]
) -> Tensor:
    """``index_put`` for indices of the first dims, some of which are split, of what belongs to this rank's slice."""
    local, inside = _locate_all(x, indices, starts, wholes)
    mine = [i[inside] for i in torch.broadcast_tensors(*local)]
    rows = values.expand(*inside.shape, *x.shape[len(local) :])[inside]
    return x.index_put(mine, rows, accumulate)
