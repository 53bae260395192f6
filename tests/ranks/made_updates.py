"""Optimizers made up for tests. Workers load their updates by name, so they stand apart from the tests."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import oneflow as flow
from oneflow.engine.ops.updates.rows import Norms, UpdateRow

Tensors = list[Tensor]


def by_own_norm(params: Tensors, grads: Tensors, lr: float) -> None:
    """w -= lr * |w| * g, with the norm of what it is given"""
    for w, g in zip(params, grads):
        w.sub_(lr * torch.linalg.vector_norm(w) * g)


def by_given_norm(params: Tensors, grads: Tensors, lr: float, *, norms: Norms) -> None:
    """w -= lr * |w| * g, with the norm that it is told"""
    for w, g, norm in zip(params, grads, norms(params)):
        w.sub_(lr * norm * g)


SAYS_NOTHING = UpdateRow(by_own_norm)
SEES_VARIABLES = UpdateRow(by_own_norm, "variable")
DECLARES_NORMS = UpdateRow(by_given_norm, "norms")


class Scaled(flow.optimizer.Optimizer):
    """An optimizer of one of these rows."""

    def __init__(self, row: UpdateRow, **common: Any) -> None:
        super().__init__(flow.optimizer.ConstantScheduler(0.01), **common)
        self._row = row

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        return self._row, {}
