"""The aten calls that ranks make for their parts of a call: what the rule's signatures lower it to, on parts of size 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lockstep import cut, lock_step, rank_graph, rank_steps
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from traced import Executed

from oneflow.engine.sharding.rules.rule import layouts
from oneflow.engine.sharding.rules.table import rule_of

MOST_RANKS = 8


class _Recorded(TorchDispatchMode):
    """Records every call of an op, each once for its shapes, dtypes and numbers."""

    def __init__(self, found: dict[Any, Executed]) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        copies = tree_map_only(Tensor, lambda t: t.detach().clone(), (tuple(args), dict(kwargs or {})))
        made = op(*args, **(kwargs or {}))
        one = Executed("part", op, *copies, made)
        self._found.setdefault(one.call(1).key(), one)
        return made


def part_calls(calls: Iterable[Executed]) -> list[Executed]:
    """The calls on ranks of which each holds one element of a split dim."""
    found: dict[Any, Executed] = {}
    for one in calls:
        for parts, signature in _splits(one):
            inputs, _ = layouts([signature])
            values = [cut(value, sbp, (parts,)) for value, sbp in zip(one.values, inputs)]
            graphs = [rank_graph(one.call(parts), [signature], (parts,), position) for position in range(parts)]
            with _Recorded(found):
                lock_step([rank_steps(graph, [value[p] for value in values]) for p, graph in enumerate(graphs)])
    return [one for one in found.values() if any(1 in value.shape for value in one.values)]


def _splits(one: Executed) -> Iterator[tuple[int, Any]]:
    """Numbers of ranks and signatures that leave each rank one element of some dim."""
    rule = rule_of(one.op)
    for parts in {size for value in one.values for size in value.shape if 1 < size <= MOST_RANKS}:
        for signature in () if rule is None else rule.signatures(one.call(parts)):
            splits = [(value, sbp.dim) for value, sbp in zip(one.values, signature.inputs) if sbp.kind == "S"]
            if any(value.shape[dim] == parts for value, dim in splits):
                yield parts, signature
