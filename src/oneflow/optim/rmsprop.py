"""``flow.optim.RMSprop``."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.number import flag
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optim.optimizer import Group, Optimizer, Parameters
from oneflow.optim.options import at_least_0, fraction

# By whether there is a momentum and whether the mean gradient is taken off.
_ROWS = {
    (False, False): formulas.RMSPROP,
    (True, False): formulas.RMSPROP_MOMENTUM,
    (False, True): formulas.RMSPROP_CENTERED,
    (True, True): formulas.RMSPROP_CENTERED_MOMENTUM,
}


class RMSprop(Optimizer):
    """d = g + weight_decay * w; s: moving mean of d*d by ``alpha``, less the square of the mean of d if ``centered``;
    v = momentum * v + lr * d / sqrt(s + eps); w -= v.

    As in OneFlow ``eps`` stands below the root and the rate inside the velocity; torch adds eps to the root and
    multiplies with the rate last. ``contiguous_params`` changes nothing: all parameters of a group are updated together
    anyway.
    """

    rows = tuple(_ROWS.values())
    checks = {"alpha": fraction, "eps": at_least_0, "momentum": at_least_0, "centered": flag}

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0.0,
        centered: bool = False,
        contiguous_params: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
        }
        super().__init__(params, {**options, "contiguous_params": contiguous_params})

    def update_of(self, group: Group) -> tuple[UpdateRow, dict[str, Any]]:
        numbers = {"alpha": group["alpha"], "epsilon": group["eps"], "weight_decay": group["weight_decay"]}
        if group["momentum"]:
            numbers["momentum"] = group["momentum"]
        return _ROWS[bool(group["momentum"]), bool(group["centered"])], numbers
