"""``flow.optim.Adagrad``."""

from __future__ import annotations

from typing import Any

from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optim.optimizer import Group, Optimizer, Parameters
from oneflow.optim.options import at_least_0


class Adagrad(Optimizer):
    """d = g + weight_decay * w; s += d * d, from ``initial_accumulator_value`` on;
    w -= lr / (1 + (number of the update - 1) * lr_decay) * d / (sqrt(s) + eps).

    ``contiguous_params`` changes nothing: torch's fused kernel takes all parameters of a group in one call anyway.
    """

    rows = (formulas.ADAGRAD,)
    checks = dict.fromkeys(("lr_decay", "initial_accumulator_value", "eps"), at_least_0)

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        lr_decay: float = 0.0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        contiguous_params: bool = False,
    ) -> None:
        options = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        super().__init__(
            params,
            {**options, "initial_accumulator_value": initial_accumulator_value, "contiguous_params": contiguous_params},
        )

    def update_of(self, group: Group) -> tuple[UpdateRow, dict[str, Any]]:
        numbers = {name: group[name] for name in ("lr_decay", "weight_decay", "initial_accumulator_value")}
        return formulas.ADAGRAD, {**numbers, "epsilon": group["eps"]}
