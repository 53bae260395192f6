"""The optimizers of a graph as the compiler knows them: one for each parameter group, with the update and the rate of that group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from oneflow.core.errors import GraphError
from oneflow.ops.update_row import UpdateRow
from oneflow.optim.lr_scheduler import LRScheduler
from oneflow.optim.optimizer import Optimizer, first_state
from oneflow.optimizer import optimizers as compiled
from oneflow.optimizer.schedule import LrScheduler


@dataclass(frozen=True)
class Added:
    """An optimizer as ``add_optimizer`` was given it, with its schedule if it has one."""

    optimizer: Optimizer
    schedule: LRScheduler | None

    def rate(self, group: dict[str, Any], first: int) -> Callable[[int], float]:
        """The rate of a group as a function of the graph's step. A schedule that has gone ahead of the graph goes on from where it is; without
        one the rate is what the group says when the step is run."""
        scale, schedule = float(group.get("lr_scale", 1.0)), self.schedule
        if schedule is None:
            return lambda t: float(group["lr"]) * scale
        base = group["initial_lr"]
        ahead = max(0, schedule.last_step - first)
        return lambda t: float(schedule.get_lr(base, t + ahead)) * scale


class _Rate(LrScheduler):
    """A rate that is a function of the step alone, not rounded."""

    def __init__(self, rate: Callable[[int], float]) -> None:
        super().__init__(0.0)
        self._rate = rate

    def lr(self, t: int, base_lr: float | None = None) -> float:
        return self._rate(t)


class GroupUpdate(compiled.Optimizer):
    """What is done with the variables of one parameter group. ``first`` is the number of the graph's step when it is compiled."""

    def __init__(self, added: Added, group: dict[str, Any], names: list[str], first: int) -> None:
        super().__init__(_Rate(added.rate(group, first)), grad_clipping=added.optimizer.clipping_of(group), variables=names)
        self._added = added
        self._update = added.optimizer.update_of(group)
        self._ahead = added.optimizer.step_count - first

    @property
    def title(self) -> str:
        return type(self._added.optimizer).__name__

    def count(self, t: int) -> float:
        return float(t + 1 + self._ahead)

    def update(self, weight_decay: float) -> tuple[UpdateRow, dict[str, Any]]:
        return self._update


class GraphOptimizer(compiled.Optimizer):
    """All optimizers of a graph together."""

    def __init__(self, groups: Sequence[GroupUpdate]) -> None:
        super().__init__(groups[0].lr_scheduler)
        self._groups = list(groups)

    def members(self) -> list[compiled.Optimizer]:
        return list(self._groups)

    def selects(self, name: str) -> bool:
        return any(group.selects(name) for group in self._groups)


def graph_optimizer(every: Sequence[Added], names: Mapping[int, str], first: int) -> GraphOptimizer:
    """The optimizers of a graph whose variables have ``names``, by id."""
    groups = []
    for added in every:
        for number, group in enumerate(added.optimizer.param_groups):
            strange = [tuple(p.shape) for p in group["params"] if id(p) not in names]
            if strange:
                raise GraphError(
                    f"group {number} of the graph's {type(added.optimizer).__name__} has a parameter of shape {strange[0]} that belongs to no module of the graph; "
                    "assign the module to an attribute of the graph in __init__(), and make the optimizer of its parameters"
                )
            groups.append(GroupUpdate(added, group, [names[id(p)] for p in group["params"]], first))
    return GraphOptimizer(groups)


def states_of(every: Sequence[Added], names: Mapping[int, str], trained: frozenset[str]) -> dict[str, Tensor]:
    """The optimizers' states of trained variables, by the names of state variables; made where they are not there yet."""
    found = {}
    for added in every:
        for group in added.optimizer.param_groups:
            row, numbers = added.optimizer.update_of(group)
            for p in group["params"]:
                for state in row.states if names.get(id(p)) in trained else ():
                    kept = added.optimizer.state[p]
                    if state.suffix not in kept:
                        kept[state.suffix] = first_state(p, state, numbers)
                    found[f"{names[id(p)]}-{state.suffix}"] = kept[state.suffix]
    return found
