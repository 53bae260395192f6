"""``flow.optim.SGD``."""

from __future__ import annotations

from typing import Any

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import flag
from oneflow.engine.ops.updates import formulas
from oneflow.engine.ops.updates.rows import UpdateRow
from oneflow.optim.optimizer import Group, Optimizer, Parameters
from oneflow.optim.options import at_least_0


class SGD(Optimizer):
    """d = g + weight_decay * w; with momentum v = momentum * v + (1 - dampening) * d, and v = d at the first update; w
    -= lr * v, or, with ``nesterov``, lr * (d + momentum * v). ``maximize`` takes -g for g.

    The first update is that of the optimizer: a parameter that gets its first gradient later starts from v = 0.
    ``fused`` and ``contiguous_params`` change nothing: torch's fused kernel takes all parameters of a group in one call
    anyway.
    """

    rows = (formulas.SGD, formulas.SGD_MOMENTUM)
    checks = {"momentum": at_least_0, "dampening": at_least_0, "nesterov": flag, "maximize": flag}

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.001,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
        fused: bool = False,
        contiguous_params: bool = False,
    ) -> None:
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, {**options, "fused": fused, "contiguous_params": contiguous_params})

    def check_group(self, group: Group) -> None:
        super().check_group(group)
        if group["nesterov"] and not (group["momentum"] > 0 and group["dampening"] == 0):
            raise ArgumentError(
                f"nesterov needs a momentum above 0 and no dampening, got {group['momentum']} and {group['dampening']}"
            )

    def update_of(self, group: Group) -> tuple[UpdateRow, dict[str, Any]]:
        numbers = {"weight_decay": group["weight_decay"], "maximize": group["maximize"]}
        if not group["momentum"]:
            return formulas.SGD, numbers
        return formulas.SGD_MOMENTUM, {
            **numbers,
            **{name: group[name] for name in ("momentum", "dampening", "nesterov")},
        }
