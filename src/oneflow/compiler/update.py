"""Appends the optimizer update to a joint graph: unscale, regularize, clip, update, in that order."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from oneflow.ir.graph import Graph, VariableDecl
from oneflow.ops import update
from oneflow.optimizer.optimizers import Optimizer


@dataclass(frozen=True)
class Group:
    """Variables that one update call serves: same optimizer, same rate, same weight decay, all rows or only those in use."""

    optimizer: Optimizer
    base_lr: float | None
    weight_decay: float
    row_wise: bool
    names: tuple[str, ...]

    def rate(self, t: int) -> float:
        return self.optimizer.rate(t, self.base_lr)


def groups_of(graph: Graph, optimizer: Optimizer, names: list[str]) -> list[Group]:
    """The update groups of the trained variables, in a fixed order."""
    found: dict[tuple[int, float | None, float, bool], list[str]] = {}
    members = optimizer.members()
    for name in names:
        member = next(i for i, o in enumerate(members) if o.selects(name))
        chosen = members[member]
        bias = graph.decls[name].model_name == "bias" and chosen.secondary_lr is not None
        key = (member, chosen.secondary_lr if bias else None, chosen.weight_decay.of(name), name in graph.training.row_wise)
        found.setdefault(key, []).append(name)
    return [Group(members[i], base, decay, row_wise, tuple(group)) for (i, base, decay, row_wise), group in found.items()]


def trained_by(graph: Graph, optimizer: Optimizer) -> list[VariableDecl]:
    """The variables that an optimizer updates."""
    return [decl for decl in graph.trained_variables() if optimizer.selects(decl.name)]


def state_decls(graph: Graph, optimizer: Optimizer) -> list[VariableDecl]:
    """The state variables that training keeps for the variables it updates."""
    members = optimizer.members()
    owners = [(decl, next(o for o in members if o.selects(decl.name))) for decl in trained_by(graph, optimizer)]
    return [state for decl, owner in owners for state in owner.state_decls(decl)]


def append_update(
    target: fx.Graph,
    graph: Graph,
    groups: list[Group],
    variables: dict[str, fx.Node],
    gradients: dict[str, fx.Node],
    rates: list[fx.Node],
    unscale: fx.Node | float | None,
    coupled: Callable[[VariableDecl], tuple[float, float]],
) -> None:
    """Adds the update of every group. ``coupled`` gives each variable's L1 and L2 that are added to its gradient."""
    for members in _by_optimizer(groups):
        names = [name for group, _ in members for name in group.names]
        grads = _prepared(target, graph, members[0][0].optimizer, names, variables, gradients, unscale, coupled)
        for group, index in members:
            _call_update(target, graph, group, variables, grads, rates[index])


def _by_optimizer(groups: list[Group]) -> list[list[tuple[Group, int]]]:
    """Groups with their rate's index, put together by optimizer: clipping looks at all variables of one."""
    found: dict[int, list[tuple[Group, int]]] = {}
    for index, group in enumerate(groups):
        found.setdefault(id(group.optimizer), []).append((group, index))
    return list(found.values())


def _prepared(
    target: fx.Graph,
    graph: Graph,
    optimizer: Optimizer,
    names: list[str],
    variables: dict[str, fx.Node],
    gradients: dict[str, fx.Node],
    unscale: fx.Node | float | None,
    coupled: Callable[[VariableDecl], tuple[float, float]],
) -> dict[str, Any]:
    """Each variable's final gradient, as a node."""
    grads: Any = [gradients[name] for name in names]
    if unscale is not None:
        grads = target.call_function(update.scaled, (grads, unscale))
    numbers = [coupled(graph.decls[name]) for name in names]
    if any(l1 or l2 for l1, l2 in numbers):
        weights = [variables[name] for name in names]
        grads = target.call_function(update.regularized, (weights, grads, [n[0] for n in numbers], [n[1] for n in numbers]))
    clip = optimizer.grad_clipping
    if clip is not None:
        grads = target.call_function(update.clipped, (grads,), {"clip_norm": clip.clip_norm, "historical": clip.historical})
    if isinstance(grads, fx.Node):
        return {name: target.call_function(operator.getitem, (grads, i)) for i, name in enumerate(names)}
    return dict(zip(names, grads))


def _call_update(target: fx.Graph, graph: Graph, group: Group, variables: dict[str, fx.Node], grads: dict[str, Any], rate: fx.Node) -> None:
    function, numbers = group.optimizer.update(group.weight_decay)
    weights = [variables[name] for name in group.names]
    states = [[variables[f"{name}-{suffix}"] for name in group.names] for suffix in group.optimizer.states]
    arguments: Any = (weights, [grads[name] for name in group.names], *states, rate)
    if group.row_wise:
        function, numbers = update.row_wise, {"function": function, **numbers}
    node = target.call_function(function, arguments, numbers)
    names = ", ".join(group.names[:3]) + (" ..." if len(group.names) > 3 else "")
    node.meta["what"] = f"the {type(group.optimizer).__name__} update of {names}"
