"""``flow.nn.functional``: activations and normalisation. Tensors, under OneFlow's parameter names and torch's."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import as_whole
from oneflow.nn.functional._names import also

celu = also(x="input")(functional.celu)
elu = also(x="input")(functional.elu)
hardsigmoid = also(x="input")(functional.hardsigmoid)
hardswish = also(x="input")(functional.hardswish)
leaky_relu = also(x="input", alpha="negative_slope")(functional.leaky_relu)
mish = also(x="input")(functional.mish)
selu = also(x="input")(functional.selu)
silu = also(x="input")(functional.silu)
softsign = also(x="input")(functional.softsign)
tanh = also(x="input")(functional.tanh)


@also(input="x")
def quick_gelu(x: Tensor) -> Tensor:
    """x · sigmoid(1.702 · x)."""
    return x * torch.sigmoid(1.702 * x)


@also(input="x")
def softmax(x: Tensor, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """exp(x) divided by its sum over ``dim``, the last if none is given."""
    return torch.softmax(x, -1 if dim is None else dim, dtype=dtype)


@also(input="x")
def log_softmax(x: Tensor, dim: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """log(softmax(x)), without overflow, over ``dim``, the last if none is given."""
    return torch.log_softmax(x, -1 if dim is None else dim, dtype=dtype)


@also(logits="x", input="x")
def gumbel_softmax(x: Tensor, dim: int = -1, tau: float = 1.0, hard: bool = False) -> Tensor:
    """A sample of the Gumbel-softmax of the logits ``x`` over ``dim``, at temperature ``tau``; with ``hard`` one-hot,
    with the gradient of the soft sample. OneFlow's order: ``dim`` before ``tau``."""
    if as_whole(dim) is None:
        raise ArgumentError(
            f"gumbel_softmax: dim is an int, got {dim!r}; the order is (x, dim, tau, hard), so give tau and hard by "
            f"name"
        )
    return functional.gumbel_softmax(x, tau=tau, hard=hard, dim=dim)


@also(eps="epsilon")
def normalize(input: Tensor, p: float = 2.0, dim: int = 0, epsilon: float = 1e-12) -> Tensor:
    """``input`` divided by its p-norm over ``dim`` (0 unless said, where torch has 1), or by ``epsilon`` where that is
    larger."""
    return functional.normalize(input, p, dim, epsilon)
