"""Activations with a parameter, and the softmaxes. Those without one are in ``unary``."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.ops.elementwise import operands, require_float
from oneflow.engine.ops.row import Family, Op, require

ROWS = Family()


def _plain(name: str, function: Callable[[Tensor], Tensor], precision: str | None = None) -> Op:
    return ROWS.add(name, lambda x: function(require_float(x)), precision=precision)


relu6 = _plain("nn.relu6", F.relu6, "clear")  # as relu: a selection, exact in any precision
hardswish = _plain("nn.hardswish", F.hardswish)
hardsigmoid = _plain("nn.hardsigmoid", F.hardsigmoid)
mish = _plain("nn.mish", F.mish)


@ROWS.op("nn.leaky_relu")
def leaky_relu(x: Tensor, *, alpha: float) -> Tensor:
    return F.leaky_relu(require_float(x), alpha)


@ROWS.op("nn.elu")
def elu(x: Tensor, *, alpha: float) -> Tensor:
    return F.elu(require_float(x), alpha)


@ROWS.op("nn.hardtanh")
def hardtanh(x: Tensor, *, low: float, high: float) -> Tensor:
    require(low < high, f"hardtanh's lower bound {low} is not below its upper bound {high}")
    return F.hardtanh(require_float(x), low, high)


@ROWS.op("nn.swish")
def swish(x: Tensor, *, beta: float) -> Tensor:
    """x · sigmoid(beta · x)."""
    return F.silu(require_float(x)) if beta == 1 else x * torch.sigmoid(require_float(x) * beta)


@ROWS.op("nn.prelu")
def prelu(x: Tensor, alpha: Tensor) -> Tensor:
    """x where it is positive, alpha · x elsewhere; alpha broadcasts against each sample."""
    operands(require_float(x), alpha)
    return torch.where(x > 0, x, alpha * x)


def _softmax(name: str, function: Callable[[Tensor, int], Tensor], precision: str | None) -> Op:
    def compute(x: Tensor, *, dim: int) -> Tensor:
        require(require_float(x).dim() >= 2, f"the logits have rank {x.dim()}, expected 2 or more")
        require(-x.dim() <= dim < x.dim(), f"the axis {dim} does not exist in logits of rank {x.dim()}")
        return function(x, dim)

    return ROWS.add(name, compute, precision=precision)


softmax = _softmax("nn.softmax", lambda x, dim: torch.softmax(x, dim), "gray")
logsoftmax = _softmax("nn.logsoftmax", lambda x, dim: torch.log_softmax(x, dim), None)
