"""``flow.nn.functional``: dropout, by a generator of its own if one is given."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.nn.functional._names import also

dropout1d = also(x="input")(functional.dropout1d)
dropout2d = also(x="input")(functional.dropout2d)
dropout3d = also(x="input")(functional.dropout3d)


@also(input="x")
def dropout(
    x: Tensor,
    p: float = 0.5,
    training: bool = True,
    generator: torch.Generator | None = None,
    *,
    addend: Tensor | None = None,
    inplace: bool = False,
) -> Tensor:
    """``x`` with a part ``p`` of its elements 0 and the others divided by 1 - p, if ``training``; then ``addend``
    added."""
    if isinstance(generator, bool):  # torch's fourth parameter
        generator, inplace = None, generator
    dropped = (
        functional.dropout(x, p, training, inplace)
        if generator is None
        else dropped_by(x, p, training, generator, inplace)
    )
    return dropped if addend is None else dropped + addend


def dropped_by(
    x: Tensor, p: float, training: bool, generator: torch.Generator, inplace: bool, spatial: int = 0
) -> Tensor:
    """Dropout whose mask ``generator`` draws; the last ``spatial`` dimensions are dropped or kept together."""
    if not isinstance(generator, torch.Generator):
        raise DTypeError(f"dropout: generator is a flow.Generator or None, got {generator!r}")
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout: p is a number from 0 to 1, got {p!r}")
    if not training or p == 0:
        return x
    shape = (*x.shape[: x.dim() - spatial], *[1] * spatial)
    mask = torch.empty(shape, dtype=x.dtype, device=x.device).bernoulli_(1.0 - p, generator=generator)
    if p < 1:
        mask.div_(1.0 - p)
    return x.mul_(mask) if inplace else x * mask
