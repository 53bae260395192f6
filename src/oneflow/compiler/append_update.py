"""Appends the optimizer update to the graph of a rank: unscale, regularize, clip, update, in that order. One call of a
fused kernel updates all variables of a group.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torch import fx

import oneflow.collective as collective
from oneflow.compiler.notes import UpdateNote, change_local_note
from oneflow.compiler.step_decl import StepDecl
from oneflow.core.dtype import DType
from oneflow.core.errors import UnsupportedError
from oneflow.core.variable import VariableDecl
from oneflow.ops import update
from oneflow.optimizer.grad_clipping import ClipByGlobalNorm, ClipGradNorm
from oneflow.optimizer.optimizers import Optimizer

_DECLARE = "declare in the row of the update what it sees= of a variable (oneflow.ops.update_row)"


@dataclass(frozen=True)
class UpdateGroup:
    """Variables that one update call serves: same optimizer, same rate, same weight decay, same dtype, all rows or only
    those in use; and the L2 that the update itself adds to their gradients, where it can."""

    optimizer: Optimizer
    base_lr: float | None
    weight_decay: float
    row_wise: bool
    l2: float
    names: tuple[str, ...]

    def rate(self, t: int) -> float:
        return self.optimizer.rate(t, self.base_lr)

    @property
    def takes_count(self) -> bool:
        return self.optimizer.row.takes_count


@dataclass(frozen=True)
class GroupRate:
    """The numbers that a group's update is told at each step, as nodes: its learning rate, and the number of the update
    where it asks."""

    rate: fx.Node
    count: fx.Node | None


def groups_of(step: StepDecl, optimizer: Optimizer, names: list[str]) -> list[UpdateGroup]:
    """The update groups of the trained variables, in a fixed order. Refuses those that an optimizer's update cannot
    serve."""
    found: dict[tuple[int, float | None, float, bool, float, DType], list[str]] = {}
    members = optimizer.members()
    for name in names:
        chosen = optimizer.owner(name)
        member = members.index(chosen)
        bias = step.decls[name].model_name == "bias" and chosen.secondary_lr is not None
        key = (
            member,
            chosen.secondary_lr if bias else None,
            chosen.weight_decay.of(name),
            name in step.require_training().row_wise,
            _own_l2(step, chosen, name),
            step.decls[name].spec.dtype,
        )
        found.setdefault(key, []).append(name)
    groups = [
        UpdateGroup(members[i], base, decay, row_wise, l2, tuple(group))
        for (i, base, decay, row_wise, l2, _), group in found.items()
    ]
    for together in _by_optimizer(groups):
        _require_rows(step, [group for group, _ in together])
    return groups


def _require_rows(step: StepDecl, groups: list[UpdateGroup]) -> None:
    """Refuses what the update of one optimizer cannot do for its groups."""
    first, row = groups[0], groups[0].optimizer.row
    for group in groups:
        if group.row_wise and not row.may_be_row_wise:
            way_out = "take it out of indexed_slices_optimizer_conf, or declare row_wise=True in the row of the update if that is right"
            raise _refused(step, group, group.names[0], "is to be updated row-wise", way_out)
        if group is not first and not row.may_be_cut:
            what = f"is to be updated apart from {first.names[0]!r}: its rate, weight decay or L2 is another"
            raise _refused(
                step, group, group.names[0], what, f"give all variables of the optimizer the same, or {_DECLARE}"
            )


def _refused(step: StepDecl, group: UpdateGroup, name: str, what: str, way_out: str) -> UnsupportedError:
    row = group.optimizer.row
    update_of = f"{group.optimizer.title} (update {row.name!r}, which sees {row.sees!r})"
    return UnsupportedError(
        f"{step.decls[name].line}: variable {name!r} {what}, and {update_of} cannot do that; {way_out}"
    )


def _own_l2(step: StepDecl, optimizer: Optimizer, name: str) -> float:
    """The L2 that an update adds to a variable's gradient in its own kernel; 0 where it must be added before, such as
    for clipping."""
    training = step.require_training()
    l1, l2 = training.coupled(step.decls[name])
    decay = optimizer.weight_decay.of(name)
    return (
        l2
        if optimizer.row.adds_l2_at(decay)
        and not l1
        and optimizer.grad_clipping is None
        and name not in training.row_wise
        else 0.0
    )


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
        for members in _by_optimizer(groups):
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
            grads = self.target.call_function(update.scaled, (grads, self.unscale))
        numbers = [(l1, l2 - own_l2[name]) for name in names for l1, l2 in [self.coupled(self.step.decls[name])]]
        if any(l1 or l2 for l1, l2 in numbers):
            weights = [self.variables[name] for name in names]
            grads = self.target.call_function(
                update.regularized, (weights, grads, [n[0] for n in numbers], [n[1] for n in numbers])
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
            update.clipped_by_norm if isinstance(clip, ClipGradNorm) else update.clipped, (grads,), numbers
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
            function, numbers = update.row_wise, {"function": function, **numbers}
        node = self.target.call_function(function, arguments, numbers)
        sizes = [spec.elements * spec.dtype.torch.itemsize for spec in (self.step.decls[name].spec for name in names)]
        may_be_cut = row.may_be_cut and not (row.takes_norms and self.parts is not None)
        may_be_by_rows = row.may_be_by_rows and not group.row_wise and not self._may_read_elsewhere(group, names)
        recipe, dtype = None if group.row_wise else row.recipe, self.step.decls[names[0]].spec.dtype.name
        note = UpdateNote(
            group.optimizer.title,
            tuple(names),
            tuple(sizes),
            may_be_cut,
            may_be_by_rows,
            row.linear,
            recipe,
            row.is_fused_at(group.weight_decay),
            dtype,
        )
        change_local_note(node, update=note)

    def _may_read_elsewhere(self, group: UpdateGroup, names: list[str]) -> bool:
        """Whether some of several ranks read gradients beside their update: one counts them in a norm, or sends them
        back. All of them must do the same."""
        return self.parts is not None and (
            group.optimizer.grad_clipping is not None or not self.parts.read.isdisjoint(names)
        )

    def _norms(self, names: list[str]) -> update.Norms:
        if self.parts is None:
            return update.local_norms
        return collective.NormOverParts(tuple(self.parts.shared_by[name] for name in names))

    def _require_whole(self, group: UpdateGroup, names: list[str]) -> None:
        """Refuses parts of variables, and a part of a group, where the update must have all of it."""
        if self.parts is None:
            return
        row = group.optimizer.row
        for name in names:
            ranks = self.parts.shared_by[name]
            if len(ranks) > 1 and not row.may_be_split:
                way_out = f"keep it and its states whole (no distribute=, no optimizer_placement_optimization_mode), or {_DECLARE}"
                raise _refused(
                    self.step, group, name, f"is updated in parts, on ranks {', '.join(map(str, ranks))}", way_out
                )
        elsewhere = [name for name in group.names if name not in names]
        if elsewhere and not row.may_be_cut:
            what = f"is updated on other ranks than {elsewhere[0]!r}"
            raise _refused(self.step, group, names[0], what, f"place both on the same ranks, or {_DECLARE}")


def _by_optimizer(groups: list[UpdateGroup]) -> list[list[tuple[UpdateGroup, int]]]:
    """Groups with their rate's index, put together by optimizer: clipping looks at all variables of one."""
    found: dict[int, list[tuple[UpdateGroup, int]]] = {}
    for index, group in enumerate(groups):
        found.setdefault(id(group.optimizer), []).append((group, index))
    return list(found.values())
