"""``flow.optim.LAMB``."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.core.number import flag
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optim.adam import adam_numbers
from oneflow.optim.optimizer import Group, Optimizer, Parameters
from oneflow.optim.options import at_least_0
from oneflow.optim.options import betas as two_betas


class LAMB(Optimizer):
    """Adam's direction d, and the weight decay, scaled by |w| / |d| of each parameter: w -= lr * |w| / |d| * (d +
    weight_decay * w). Without ``adam_w_mode`` the decay is added to the gradient instead. The ratio is 1 where a norm
    is 0.

    ``contiguous_params`` changes nothing: norms are taken of each parameter.
    """

    rows = (formulas.LAMB,)
    checks = {"betas": two_betas, "eps": at_least_0, "adam_w_mode": flag, "do_bias_correction": flag, "amsgrad": flag}

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        adam_w_mode: bool = True,
        do_bias_correction: bool = True,
        amsgrad: bool = False,
        contiguous_params: bool = False,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adam_w_mode": adam_w_mode}
        more = {"do_bias_correction": do_bias_correction, "amsgrad": amsgrad, "contiguous_params": contiguous_params}
        super().__init__(params, {**options, **more})

    def check_group(self, group: Group) -> None:
        super().check_group(group)
        if group["amsgrad"]:
            raise UnsupportedError("LAMB has no amsgrad, as in OneFlow; leave it out, or take AdamW")

    def update_of(self, group: Group) -> tuple[UpdateRow, dict[str, Any]]:
        return formulas.LAMB, adam_numbers(group, group["adam_w_mode"])
