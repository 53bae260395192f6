"""``flow.optim.Adam`` and ``flow.optim.AdamW``."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.number import flag
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optim.optimizer import Group, Optimizer, Parameters
from oneflow.optim.options import at_least_0
from oneflow.optim.options import betas as two_betas


class Adam(Optimizer):
    """m, v: moving means of g and g*g; w -= lr * (m / c1) / (sqrt(v / c2) + eps), where c = 1 - beta ** (number of the
    update), or 1 without ``do_bias_correction``. ``weight_decay`` * w is added to g; ``amsgrad`` takes the largest v so
    far.

    ``fused`` and ``contiguous_params`` change nothing: torch's fused kernel takes all parameters of a group in one call
    anyway.
    """

    rows = (formulas.ADAM, formulas.AMSGRAD)
    checks = {"betas": two_betas, "eps": at_least_0, "amsgrad": flag, "do_bias_correction": flag}
    _decoupled = False

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        do_bias_correction: bool = True,
        fused: bool = False,
        contiguous_params: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "do_bias_correction": do_bias_correction,
        }
        super().__init__(params, {**options, "fused": fused, "contiguous_params": contiguous_params})

    def update_of(self, group: Group) -> tuple[UpdateRow, dict[str, Any]]:
        return formulas.AMSGRAD if group["amsgrad"] else formulas.ADAM, adam_numbers(group, self._decoupled)


class AdamW(Adam):
    """Adam whose weight decay is not part of the gradient: w -= lr * weight_decay * w besides. Without one unless it is
    given."""

    _decoupled = True


def adam_numbers(group: Group, decoupled: bool) -> dict[str, Any]:
    """The fixed numbers of an update of Adam's kind."""
    beta1, beta2 = group["betas"]
    numbers = {"beta1": beta1, "beta2": beta2, "epsilon": group["eps"], "weight_decay": group["weight_decay"]}
    return {**numbers, "decoupled": decoupled, "do_bias_correction": group["do_bias_correction"]}
