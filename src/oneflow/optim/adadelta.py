"""``flow.optim.Adadelta``."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.number import flag
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optim.optimizer import Group, Optimizer, Parameters
from oneflow.optim.options import at_least_0, fraction


class Adadelta(Optimizer):
    """d = g + weight_decay * w; s: moving mean of d*d by ``rho``; c = sqrt(u + eps) / sqrt(s + eps) * d; u: moving mean
    of c*c; w -= lr * c. ``maximize`` takes -g for g.

    ``contiguous_params`` changes nothing: all parameters of a group are updated together anyway.
    """

    rows = (formulas.ADADELTA,)
    checks = {"rho": fraction, "eps": at_least_0, "maximize": flag}

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        maximize: bool = False,
        contiguous_params: bool = False,
    ) -> None:
        options = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**options, "contiguous_params": contiguous_params})

    def update_of(self, group: Group) -> tuple[UpdateRow, dict[str, Any]]:
        numbers = {name: group[name] for name in ("rho", "weight_decay", "maximize")}
        return formulas.ADADELTA, {**numbers, "epsilon": group["eps"]}
