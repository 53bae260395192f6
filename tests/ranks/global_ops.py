"""Laws of ops on global tensors: every rule of the table through the eager dispatch, gradients, and chains of ops."""

from __future__ import annotations

import random
from typing import Any

import made_calls
import made_network_calls
import torch
from global_rank import layouts, meshes, near, spread
from torch import Tensor
from traced import Executed

from oneflow.engine.sharding.call import with_tensors
from oneflow.engine.sharding.rules.table import RULES

aten = torch.ops.aten
FAMILIES = made_calls.FAMILIES | made_network_calls.FAMILIES
UNSET = {aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default}
MOST = 12


def drawn_layout(value: Tensor, place: Any, dice: random.Random) -> Any:
    return dice.choice(layouts(value.dim(), len(place.hierarchy), value.dtype.is_floating_point))


def apart(value: Tensor, place: int) -> Tensor:
    """Not equal to other tensors of the same call: what is as large as another one has no certain gradient in a
    maximum."""
    return value.detach() * (1.0 + 0.01 * place) if value.dtype.is_floating_point else value


def learns_all(one: Executed, values: list[Tensor], learned: list[bool]) -> bool:
    """Whether torch differentiates the op for all of these."""
    try:
        _called(one, [v.clone().requires_grad_(learns) for v, learns in zip(values, learned)])
    except RuntimeError as error:
        assert "not differentiable" in str(error)
        return False
    return True


def checked(one: Executed, place: Any, dice: random.Random) -> None:
    """One call with its tensors in layouts drawn at random, and the gradients of what has some."""
    can_learn = (
        one.op not in UNSET and any(v.dtype.is_floating_point for v in one.values) and not one.op._schema.is_mutable
    )
    values = [apart(v, place) for place, v in enumerate(one.values)]
    statistics = [
        one.call(1).index(name) for name in ("running_mean", "running_var") if "running_mean" in str(one.op._schema)
    ]
    learned = [can_learn and v.dtype.is_floating_point and i not in statistics for i, v in enumerate(values)]
    if can_learn and not learns_all(one, values, learned):
        learned = [learns and i == 0 for i, learns in enumerate(learned)]
    plain = [v.clone().requires_grad_(learns) for v, learns in zip(values, learned)]
    spots = [drawn_layout(v, place, dice) for v in values]
    ours = [spread(v, place, sbp).requires_grad_(learns) for v, sbp, learns in zip(values, spots, learned)]
    try:
        expected, found = (_called(one, tensors) for tensors in (plain, ours))
        if one.op not in UNSET:
            near(found, expected)
        _compare_gradients(plain, ours, expected, found)
        near(ours, plain)  # also what the op has written
    except Exception as error:
        raise AssertionError(
            f"{one.op} with {[tuple(v.shape) for v in one.values]} as {spots} on {place}: {str(error)[:600]!r}"
        ) from error


def _called(one: Executed, tensors: list[Any]) -> Any:
    mine = iter(tensors)
    args, kwargs = with_tensors((one.args, one.kwargs), lambda _: next(mine))
    return one.op(*args, **kwargs)


def _compare_gradients(plain: list[Tensor], ours: list[Any], expected: Any, found: Any) -> None:
    pairs = [(e, f) for e, f in zip(_listed(expected), _listed(found)) if isinstance(e, Tensor) and e.requires_grad]
    if not pairs:
        return
    total = sum((e * e).sum() for e, _ in pairs)
    try:
        total.backward()
    except RuntimeError:  # an op that torch itself does not differentiate
        return
    sum((f * f).sum() for _, f in pairs).backward()
    for leaf, other in zip(plain, ours):
        assert (leaf.grad is None) == (other.grad is None)
        if leaf.grad is not None:
            assert (other.grad.sbp, other.grad.placement) == (other.sbp, other.placement), (
                other.grad.sbp,
                other.grad.placement,
            )
            near(other.grad, leaf.grad, 1e-3)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _family_law(name: str) -> Any:
    """Every op of a family, and at most so many of its calls, each in layouts drawn at random."""

    def law() -> None:
        dice = random.Random(name)
        calls = [one for one in FAMILIES[name]() if one.values]
        first = {one.op: one for one in reversed(calls)}
        others = [one for one in calls if first[one.op] is not one]
        for one in [*first.values(), *dice.sample(others, min(MOST, len(others)))]:
            checked(one, dice.choice(meshes()), dice)

    return law


for _name in FAMILIES:
    globals()[f"law_calls_of_{_name.replace(' ', '_')}"] = _family_law(_name)


def law_every_rule_has_a_call() -> None:
    """What the compiler's rules are checked on is what global tensors are checked on; ops that take no tensor make none
    global by themselves."""
    called = {one.op for family in FAMILIES.values() for one in family()}
    missing = [str(op) for op in RULES if op not in called]
    assert not missing, f"no call of {missing} in tests/compile/made_calls.py or made_network_calls.py"
