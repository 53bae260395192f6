"""Which variables the ranks of a host hold once, for all of them: those that their programs update together (``collective/one_copy.py``)."""

from __future__ import annotations

from collections.abc import Mapping

import torch

import oneflow.collective as collective
from oneflow.collective import Ranks
from oneflow.compiler.program import Program


class HeldOnce:
    """How the variables of a rank are held, by name. A variable that any program writes in another way has a copy on every rank, for good: each of them
    writes all of it."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._together: dict[str, Ranks] = {}
        self._apart: set[str] = set()

    def admit(self, program: Program) -> bool:
        """Has variables held as a program needs them, before it first runs; whether any of them has moved. All ranks call this together, each for
        its own program of a job."""
        wanted = _updated_together(program)
        if program.writes:
            self._apart.update(_variables(program) - wanted.keys())
        asked = {**wanted, **self._together}
        self._apart.update(name for name, ranks in wanted.items() if ranks != asked[name])
        has_moved = False
        for ranks in sorted(set(asked.values())):
            names = sorted(name for name in asked if asked[name] == ranks)
            has_moved = self._hold(names, ranks) or has_moved
        return has_moved

    def _hold(self, names: list[str], ranks: Ranks) -> bool:
        """Programs of ranks may differ, so they ask each other: what one of them needs apart, all of them hold apart."""
        agreed = collective.all_reduce(torch.tensor([name not in self._apart for name in names], dtype=torch.int32), "min", ranks)
        has_moved = False
        for name, is_once in zip(names, agreed.tolist()):
            if bool(is_once) == (name in self._together):
                continue
            has_moved = True
            if is_once:
                collective.hold_once(self._tensors[name], ranks)
                self._together[name] = ranks
            else:
                collective.hold_each(self._tensors[name], ranks)
                self._together.pop(name, None)
        return has_moved


def _updated_together(program: Program) -> dict[str, Ranks]:
    """The variables of which each rank of a program updates some rows, and those ranks."""
    found: dict[str, Ranks] = {}
    for section in program.sections.values():
        arguments = [node for node in section.graph.nodes if node.op == "placeholder"]
        names = {node: key[1] for node, key in zip(arguments, section.inputs) if key[0] == "variable"}
        for node in section.graph.nodes:
            if node.target is collective.read_last:
                one_copy, tensors = node.args
                found.update({names[tensor]: one_copy.ranks for tensor in tensors})
    return found


def _variables(program: Program) -> set[str]:
    return {key[1] for section in program.sections.values() for key in section.inputs if key[0] == "variable"}
