"""Which variables the ranks of a host hold once, for all of them: those that their programs update together
(``collective/one_copy.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

import oneflow.engine.collective as collective
from oneflow.engine.collective import Ranks
from oneflow.engine.program.program import Program


class HeldOnce:
    """How the variables of a rank are held, by name. A variable that any program writes in another way has a copy on
    every rank, for good: each of them writes all of it."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        self._together: dict[str, Ranks] = {}
        self._apart: set[str] = set()

    def admit(self, program: Program) -> bool:
        """Has variables held as a program needs them, before it first runs; whether any of them has moved. All ranks
        call this together, each for its own program of a job."""
        wanted = _updated_together(program)
        if program.writes:
            self._apart.update(_variables(program) - wanted.keys())
        asked = {**wanted, **self._together}
        self._apart.update(name for name, ranks in wanted.items() if ranks != asked[name])
        if len(program.ranks) == 1:
            return False
        before = dict(self._together)
        told = self._told({name: ranks for name, ranks in asked.items() if name not in self._apart})
        for name, ranks in sorted(asked.items(), key=lambda one: (one[1], one[0])):
            self._hold(name, ranks, all(told[rank].get(name) == ranks for rank in ranks))
        return before != self._together

    def _told(self, asked: dict[str, Ranks]) -> list[dict[str, Ranks]]:
        """What each rank asks to be held once. Their programs may differ, where one of them alone reads a gradient:
        then that has a copy on each."""
        told: list[Any] = [None] * dist.get_world_size()
        with collective.meeting(tuple(range(len(told)))):
            dist.all_gather_object(told, asked)
        return told

    def _hold(self, name: str, ranks: Ranks, is_once: bool) -> None:
        if is_once and name not in self._together:
            collective.hold_once(self._tensors[name], ranks)
            self._together[name] = ranks
        elif not is_once and name in self._together:
            collective.hold_each(self._tensors[name], ranks)
            del self._together[name]


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
