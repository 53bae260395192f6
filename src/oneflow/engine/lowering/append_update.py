"""Appends the optimizer update to the graph of a rank: unscale, regularize, clip, update, in that order. One call of a
fused kernel updates all variables of a group.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.assignment.update_groups import DECLARE_SEES, UpdateGroup, by_optimizer, unsupported_update
from oneflow.engine.core.variable import VariableDecl
from oneflow.engine.ops.updates import gradients
from oneflow.engine.ops.updates.rows import Norms
from oneflow.engine.program.notes import UpdateNote, change_local_note
from oneflow.engine.program.step_decl import StepDecl
from oneflow.optimizer.grad_clipping import ClipByGlobalNorm, ClipGradNorm
from oneflow.optimizer.optimizers import Optimizer


@dataclass(frozen=True)
class GroupRate:
    """The numbers that a group's update is told at each step, as nodes: its learning rate, and the number of the update
    where it asks."""

    rate: fx.Node
    count: fx.Node | None


@dataclass(frozen=True)
class OtherRanks:
    """What the update of one rank must know of the others: who is there, which gradients this rank answers for, which
    ranks share a variable among them (() where it is whole), and the gradients that some rank gives back."""

    ranks: tuple[int, ...]
    owned: frozenset[str]
    shared_by: Mapping[str, tuple[int, ...]]
    device: str
    read: frozenset[str] = frozenset()


class Nodes(Protocol):
    """What update nodes are added to: a graph, or the lowering of one rank."""

    def call_function(
        self, target: Any, args: tuple[Any, ...] = ..., kwargs: dict[str, Any] | None = ...
    ) -> fx.Node: ...


@dataclass(frozen=True)
class Update:
    """The nodes an update reads. ``coupled`` gives each variable's L1 and L2 that are added to its gradient; ``parts``
    is None on one device."""

    target: Nodes
    step: StepDecl
    variables: Mapping[str, fx.Node]
    gradients: Mapping[str, fx.Node]
    rates: Sequence[GroupRate]
    unscale: fx.Node | float | None
    coupled: Callable[[VariableDecl], tuple[float, float]]
    parts: OtherRanks | None = None

    def append(self, groups: list[UpdateGroup]) -> None:
        """Adds the update of every group: those of its variables that are here."""
        for members in by_optimizer(groups):
            names = [name for group, _ in members for name in group.names if name in self.variables]
            own = {name: group.l2 for group, _ in members for name in group.names}
            grads = self._prepared(members[0][0].optimizer, names, own)
            for group, index in members:
                self._call_update(
                    group, [name for name in group.names if name in self.variables], grads, self.rates[index]
                )

    def _prepared(self, optimizer: Optimizer, names: list[str], own_l2: Mapping[str, float]) -> dict[str, Any]:
        """Each variable's final gradient, as a node; without the L2 that its update adds."""
        grads: Any = [self.gradients[name] for name in names]
        if self.unscale is not None and names:
            grads = self.target.call_function(gradients.scaled, (grads, self.unscale))
        numbers = [(l1, l2 - own_l2[name]) for name in names for l1, l2 in [self.coupled(self.step.decls[name])]]
        if any(l1 or l2 for l1, l2 in numbers):
            weights = [self.variables[name] for name in names]
            grads = self.target.call_function(
                gradients.regularized, (weights, grads, [n[0] for n in numbers], [n[1] for n in numbers])
            )
        if optimizer.grad_clipping is not None:
            grads = self._clipped(optimizer.grad_clipping, names, grads)
        if isinstance(grads, fx.Node):
            return {name: self.target.call_function(operator.getitem, (grads, i)) for i, name in enumerate(names)}
        return dict(zip(names, grads))

    def _clipped(self, clip: ClipByGlobalNorm | ClipGradNorm, names: list[str], grads: Any) -> fx.Node:
        numbers: dict[str, Any] = asdict(clip)
        if self.parts is not None:  # every rank takes part in the norm, also one that has no variable
            owned = [name in self.parts.owned for name in names]
            norm = {"norm_type": clip.norm_type} if isinstance(clip, ClipGradNorm) else {}
            numbers["norm"] = self.target.call_function(
                collective.norm_over, (grads, owned, self.parts.ranks, self.parts.device), norm
            )
        return self.target.call_function(
            gradients.clipped_by_norm if isinstance(clip, ClipGradNorm) else gradients.clipped, (grads,), numbers
        )

    def _call_update(self, group: UpdateGroup, names: list[str], grads: dict[str, Any], rate: GroupRate) -> None:
        """Adds the update of those variables of a group that are here, in one call. Norms of some rows are taken a
        variable at a time."""
        if not names:
            return
        self._require_whole(group, names)
        is_alone = group.row_wise and group.optimizer.row.takes_norms
        for together in [[name] for name in names] if is_alone else [names]:
            self._add_call(group, together, grads, rate)

    def _add_call(self, group: UpdateGroup, names: list[str], grads: dict[str, Any], rate: GroupRate) -> None:
        row, numbers = group.optimizer.update(group.weight_decay)
        if group.l2:
            numbers = {**numbers, "l2": group.l2}
        if row.takes_norms:
            numbers = {**numbers, "norms": self._norms(names)}
        if row.takes_count:
            numbers = {**numbers, "count": rate.count}
        weights = [self.variables[name] for name in names]
        states = [[self.variables[f"{name}-{state.suffix}"] for name in names] for state in row.states]
        arguments: Any = (weights, [grads[name] for name in names], *states, rate.rate)
        function: Callable[..., None] = row.compute
        if group.row_wise:
            function, numbers = gradients.row_wise, {"function": function, **numbers}
        node = self.target.call_function(function, arguments, numbers)
        sizes = [spec.elements * spec.dtype.torch.itemsize for spec in (self.step.decls[name].spec for name in names)]
        may_be_cut = row.may_be_cut and not (row.takes_norms and self.parts is not None)
        may_be_by_rows = row.may_be_by_rows and not group.row_wise and not self._may_read_elsewhere(group, names)
        note = UpdateNote(
            group.optimizer.title,
            tuple(names),
            tuple(sizes),
            may_be_cut,
            may_be_by_rows,
            row.linear,
            row.is_fused_at(group.weight_decay),
        )
        change_local_note(node, update=note)

    def _may_read_elsewhere(self, group: UpdateGroup, names: list[str]) -> bool:
        """Whether some of several ranks read gradients beside their update: one counts them in a norm, or sends them
        back. All of them must do the same."""
        return self.parts is not None and (
            group.optimizer.grad_clipping is not None or not self.parts.read.isdisjoint(names)
        )

    def _norms(self, names: list[str]) -> Norms:
        if self.parts is None:
            return gradients.local_norms
        return collective.NormOverParts(tuple(self.parts.shared_by[name] for name in names))

    def _require_whole(self, group: UpdateGroup, names: list[str]) -> None:
        """Refuses parts of variables, and a part of a group, where the update must have all of it."""
        if self.parts is None:
            return
        row = group.optimizer.row
        for name in names:
            ranks = self.parts.shared_by[name]
            if len(ranks) > 1 and not row.may_be_split:
                way_out = f"keep it and its states whole (no distribute=, no optimizer_placement_optimization_mode), or {DECLARE_SEES}"
                raise unsupported_update(
                    self.step, group, name, f"is updated in parts, on ranks {', '.join(map(str, ranks))}", way_out
                )
        elsewhere = [name for name in group.names if name not in names]
        if elsewhere and not row.may_be_cut:
            what = f"is updated on other ranks than {elsewhere[0]!r}"
            raise unsupported_update(
                self.step, group, names[0], what, f"place both on the same ranks, or {DECLARE_SEES}"
            )
