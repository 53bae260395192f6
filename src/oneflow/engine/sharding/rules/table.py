"""The rules of all families in one table."""

from __future__ import annotations

from typing import Any

from oneflow.engine.sharding.rules import (
    attention,
    convolution,
    create,
    index,
    matmul,
    norm,
    pointwise,
    pool,
    random,
    reduce,
    slicing,
    softmax,
    sort,
    view,
)
from oneflow.engine.sharding.rules.rule import Rule, Rules

_FAMILIES = (
    attention,
    convolution,
    create,
    index,
    matmul,
    norm,
    pointwise,
    pool,
    random,
    reduce,
    slicing,
    softmax,
    sort,
    view,
)


def _merged(families: list[Rules]) -> dict[Any, Rule]:
    merged: dict[Any, Rule] = {}
    for family in families:
        twice = merged.keys() & family.by_op.keys()
        assert not twice, f"rules in two families: {sorted(map(str, twice))}"
        merged.update(family.by_op)
    return merged


RULES: dict[Any, Rule] = _merged([family.RULES for family in _FAMILIES])


def rule_of(target: Any) -> Rule | None:
    """The rule of an aten op; None for one that only runs on whole tensors."""
    return RULES.get(target)
