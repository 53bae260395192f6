"""How the weights of one library become those of another: tables that are read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Rule:
    """One tensor of ours is made of one or several of theirs by ``join``; ``part`` makes theirs of ours. ``is_base``
    ones stand below the prefix of the base model, if there is one."""

    ours: str
    theirs: tuple[str, ...]
    join: Callable[[Tensors], Tensor]
    part: Callable[[Tensor], Tensors]
    is_base: bool = True


def same(ours: str, theirs: str, is_base: bool = True) -> Rule:
    """The same tensor under another name."""
    return Rule(ours, (theirs,), lambda given: given[0], lambda made: [made], is_base)


def both(ours: str, theirs: str, is_base: bool = True) -> list[Rule]:
    """Weight and bias of a module."""
    return [same(f"{ours}.{part}", f"{theirs}.{part}", is_base) for part in ("weight", "bias")]


def turned(ours: str, theirs: str) -> Rule:
    """A weight that they keep as (in, out)."""
    return Rule(ours, (theirs,), lambda given: given[0].t(), lambda made: [made.t()])


def by_head(ours: str, theirs: Sequence[str], heads: int) -> Rule:
    """Query, key and value, which they keep one behind the other or in three tensors, and we head by head: [3 * A * d,
    ...] as [A, 3, d, ...]."""
    return Rule(
        ours,
        tuple(theirs),
        lambda given: interleaved(torch.cat(list(given)), heads),
        lambda made: list(_apart(made, heads).chunk(len(theirs))),
    )


def stacked(ours: str, theirs: Sequence[str]) -> Rule:
    """Tensors that we keep as one, one behind the other."""
    return Rule(ours, tuple(theirs), lambda given: torch.cat(list(given)), lambda made: list(made.chunk(len(theirs))))


def by_head_turned(ours: str, theirs: str, heads: int) -> Rule:
    """The same for one weight of (in, out)."""
    return Rule(ours, (theirs,), lambda given: interleaved(given[0].t(), heads), lambda made: [_apart(made, heads).t()])


def interleaved(stack: Tensor, heads: int) -> Tensor:
    """[3 * A * d, ...] with all queries first as [A * 3 * d, ...] with query, key and value of each head together."""
    return stack.view(3, heads, -1, *stack.shape[1:]).transpose(0, 1).reshape(stack.shape)


def _apart(made: Tensor, heads: int) -> Tensor:
    return made.reshape(heads, 3, -1, *made.shape[1:]).transpose(0, 1).reshape(made.shape)


def converted(rules: Iterable[Rule], theirs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], list[str], list[str]]:
    """Ours by name; which of ours there are no tensors for; which of theirs were not used."""
    made: dict[str, Tensor] = {}
    missing: list[str] = []
    used: set[str] = set()
    for rule in rules:
        if all(name in theirs for name in rule.theirs):
            made[rule.ours] = rule.join([theirs[name] for name in rule.theirs])
            used.update(rule.theirs)
        else:
            missing.append(rule.ours)
    return made, missing, [name for name in theirs if name not in used]


def renamed(config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The values of a config under other names; those that ``names`` has not are left out."""
    return {names[name]: value for name, value in config.items() if name in names}
