"""The optimizers of a graph as the compiler knows them: one for each parameter group, with the update and the rate of
that group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oneflow.engine.core.errors import GraphError
from oneflow.engine.global_tensor.sbp import public
from oneflow.engine.global_tensor.spec import in_order_of
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.ops.updates.rows import State, UpdateRow
from oneflow.engine.sharding.mesh import Layout, whole_on
from oneflow.optim.optimizer import Optimizer, first_state
from oneflow.optimizer import optimizers as compiled
from oneflow.optimizer.schedule import LrScheduler

if TYPE_CHECKING:
    from oneflow.optim.lr_scheduler import LRScheduler


@dataclass(frozen=True)
class Added:
    """An optimizer as ``add_optimizer`` was given it, with its schedule if it has one."""

    optimizer: Optimizer
    schedule: LRScheduler | None

    def rate(self, number: int, first: int) -> Callable[[int], float]:
        """The rate of a group as a function of the graph's step. A schedule that has gone ahead of the graph goes on
        from where it is; without one the rate is what the group says when the step is run."""
        group, schedule = self.optimizer.param_groups[number], self.schedule
        scale = float(group.get("lr_scale", 1.0))
        if schedule is None:
            return lambda t: float(group["lr"]) * scale
        ahead = max(0, schedule.last_step - first)
        return lambda t: float(schedule.rates(t + ahead)[number]) * scale


class _Rate(LrScheduler):
    """A rate that is a function of the step alone, not rounded."""

    def __init__(self, rate: Callable[[int], float]) -> None:
        super().__init__(0.0)
        self._rate = rate

    def lr(self, t: int, base_lr: float | None = None) -> float:
        return self._rate(t)


class GroupUpdate(compiled.Optimizer):
    """What is done with the variables of one parameter group. ``first`` is the number of the graph's step when it is
    compiled."""

    def __init__(self, added: Added, number: int, names: list[str], first: int) -> None:
        group = added.optimizer.param_groups[number]
        super().__init__(
            _Rate(added.rate(number, first)), grad_clipping=added.optimizer.clipping_of(group), variables=names
        )
        self._added = added
        self._update = added.optimizer.update_of(group)

    @property
    def title(self) -> str:
        return type(self._added.optimizer).__name__

    def count(self, t: int) -> float:
        """That of the optimizer itself: steps that overflowed are not updates, and eager steps between two calls
        are."""
        return float(self._added.optimizer.step_count + 1)

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
                    f"group {number} of the graph's {type(added.optimizer).__name__} has a parameter of shape "
                    f"{strange[0]} that belongs to no module of the graph; "
                    "assign the module to an attribute of the graph in __init__(), and make the optimizer of its "
                    "parameters"
                )
            groups.append(GroupUpdate(added, number, [names[id(p)] for p in group["params"]], first))
    return GraphOptimizer(groups)


def states_of(
    every: Sequence[Added], names: Mapping[int, str], layouts: Mapping[str, Layout | None]
) -> dict[str, Tensor]:
    """The optimizers' states of trained variables, by the names of state variables; made where they are not there yet.
    ``layouts`` are those of the variables' updates, None for a local one."""
    found = {}
    for added in every:
        for group in added.optimizer.param_groups:
            row, numbers = added.optimizer.update_of(group)
            for p in group["params"]:
                for state in row.states if names.get(id(p)) in layouts else ():
                    layout, kept = layouts[names[id(p)]], added.optimizer.state[p]
                    made = (
                        _state(kept, p, state, numbers)
                        if layout is None
                        else _global_state(kept, p, state, numbers, layout)
                    )
                    found[f"{names[id(p)]}-{state.suffix}"] = made
    return found


def _global_state(kept: dict[str, Tensor], p: Any, state: State, numbers: Mapping[str, Any], layout: Layout) -> Tensor:
    """A state of a global parameter, in the layout of its update; one of a shape of its own is whole."""
    from oneflow.engine.global_tensor.create import full

    found: Any = kept.get(state.suffix)
    sbp = list(map(public, (layout if state.shape is None else whole_on(layout.mesh)).sbp))
    if found is None:
        shape, dtype = (tuple(p.shape), p.dtype) if state.shape is None else (state.shape, torch.float32)
        found = full(
            shape, 0.0 if state.start is None else numbers[state.start], dtype=dtype, placement=p.placement, sbp=sbp
        )
    elif not isinstance(found, GlobalTensor):
        raise GraphError(
            f"the optimizer has the local state {state.suffix!r} of a global parameter of shape {tuple(p.shape)}; load "
            f"states that are global tensors"
        )
    else:
        found = found.to_global(placement=p.placement, sbp=sbp)  # type: ignore[attr-defined]
    if state.shape is None and found._part is not None:
        found._part = in_order_of(p._part, found._part)  # by which the fused kernels read it
    kept[state.suffix] = found
    return found


def _state(kept: dict[str, Tensor], p: Tensor, state: State, numbers: Mapping[str, Any]) -> Tensor:
    """A state as the update takes it: in the strides of its parameter, by which the fused kernels read it."""
    found = kept.get(state.suffix)
    if found is None:
        found = kept[state.suffix] = first_state(p, state, numbers)
    elif found.shape == p.shape and found.stride() != p.stride():
        found = kept[state.suffix] = torch.empty_like(p, requires_grad=False).copy_(found)
    return found
