"""The base of all schedulers: a rate is a formula of the base rate and the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.core.number import flag, whole


class LRScheduler:
    """``get_lr(base_lr, step)`` is the rate of a step, 0 being the first: a pure function, so eager programs and graphs
    ask it alike.

    The constructor performs the first step: it sets the rates of step ``last_step + 1``. Base rates are the
    ``initial_lr`` of the optimizer's groups, which is their ``lr`` when the first scheduler is made. Any
    ``torch.optim`` optimizer may be given. ``verbose`` prints every rate that is set.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, last_step: int = -1, verbose: bool = False) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ArgumentError(
                f"a scheduler takes an optimizer of flow.optim or torch.optim, got {type(optimizer).__name__}"
            )
        self.optimizer = optimizer
        self.last_step = whole("last_step", last_step, -1)
        self.verbose = flag("verbose", verbose)
        self.base_lrs = _base_rates(optimizer, self.last_step)
        self._last_lr: list[float] = []
        self.step()

    @property
    def is_function_of_step(self) -> bool:
        """Whether ``rates`` is a pure function of the step, and so may be asked for any step. Graphs need it."""
        return True

    def get_lr(self, base_lr: float, step: int) -> float:
        """The rate of a step for a group of this base rate."""
        raise UnsupportedError(f"{type(self).__name__} has no formula; override get_lr(base_lr, step)")

    def rates(self, step: int) -> list[float]:
        """The rates of all groups at a step."""
        return self.rates_from(self.base_lrs, step)

    def rates_from(self, base_lrs: Sequence[float], step: int) -> list[float]:
        """The rates at a step of groups that have these base rates."""
        return [self.get_lr(base, step) for base in base_lrs]

    def step(self) -> None:
        """Goes on to the next step and sets its rates."""
        self.last_step += 1
        self._set(self.rates(self.last_step))

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Every attribute but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what ``state_dict`` gave. The rates of the optimizer are its own state: load that too, or call
        ``step``."""
        if missing := self.state_dict().keys() - state_dict.keys():
            raise ArgumentError(
                f"this state of a scheduler has no {sorted(missing)}, so it is not one of {type(self).__name__}"
            )
        self.__dict__.update(state_dict)

    def _set(self, rates: list[float]) -> None:
        for i, (group, rate) in enumerate(zip(self.optimizer.param_groups, rates)):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
            if self.verbose:
                print(f"step {self.last_step}: the rate of parameter group {i} is {rate:.4e}")
        self._last_lr = rates


def _base_rates(optimizer: torch.optim.Optimizer, last_step: int) -> list[float]:
    for i, group in enumerate(optimizer.param_groups):
        if last_step == -1:
            rate = group["lr"]
            group.setdefault("initial_lr", rate.item() if isinstance(rate, torch.Tensor) else rate)
        elif "initial_lr" not in group:
            raise ArgumentError(
                f"to go on after last_step={last_step}, parameter group {i} of the optimizer needs its 'initial_lr'"
            )
    return [float(group["initial_lr"]) for group in optimizer.param_groups]
