"""Groups the trained variables of a step by the update call that serves them."""

from __future__ import annotations

from dataclasses import dataclass

from oneflow.engine.core.dtype import DType
from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.program.step_decl import StepDecl
from oneflow.optimizer.optimizers import Optimizer

DECLARE_SEES = "declare in the row of the update what it sees= of a variable (oneflow.engine.ops.updates.rows)"


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
    for together in by_optimizer(groups):
        _require_rows(step, [group for group, _ in together])
    return groups


def _require_rows(step: StepDecl, groups: list[UpdateGroup]) -> None:
    """Refuses what the update of one optimizer cannot do for its groups."""
    first, row = groups[0], groups[0].optimizer.row
    for group in groups:
        if group.row_wise and not row.may_be_row_wise:
            way_out = "take it out of indexed_slices_optimizer_conf, or declare row_wise=True in the row of the update if that is right"
            raise unsupported_update(step, group, group.names[0], "is to be updated row-wise", way_out)
        if group is not first and not row.may_be_cut:
            what = f"is to be updated apart from {first.names[0]!r}: its rate, weight decay or L2 is another"
            raise unsupported_update(
                step, group, group.names[0], what, f"give all variables of the optimizer the same, or {DECLARE_SEES}"
            )


def unsupported_update(step: StepDecl, group: UpdateGroup, name: str, what: str, way_out: str) -> UnsupportedError:
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


def by_optimizer(groups: list[UpdateGroup]) -> list[list[tuple[UpdateGroup, int]]]:
    """Groups with their rate's index, put together by optimizer: clipping looks at all variables of one."""
    found: dict[int, list[tuple[UpdateGroup, int]]] = {}
    for index, group in enumerate(groups):
        found.setdefault(id(group.optimizer), []).append((group, index))
    return list(found.values())
