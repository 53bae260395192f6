"""Runs the program of one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.collective import Bound
from oneflow.compiler.codegen import Code, generate
from oneflow.compiler.distribute import Key
from oneflow.compiler.rank_program import RankProgram, Section
from oneflow.core.errors import PeerError, RunError
from oneflow.runtime.executor import failing_node


Feeds = Sequence[Mapping[int, torch.Tensor]]
"""What each micro-batch of a step is fed, by number."""


@dataclass(frozen=True)
class Step:
    """What the driver says of a step: its number, the learning rates, and the loss scale."""

    number: int
    rates: tuple[float, ...]
    scale: float


@dataclass(frozen=True)
class StepResult:
    """This rank's parts of results and watched values, a list with one entry a micro-batch, None where other ranks answer; and whether the
    gradients were finite."""

    results: list[list[torch.Tensor] | None]
    watched: list[list[torch.Tensor] | None]
    is_finite: bool


class RankExecutor:
    """A rank's program with its variables bound. Its steps run in inference mode, which the caller is in."""

    def __init__(self, program: RankProgram, variables: Mapping[str, torch.Tensor], device: torch.device) -> None:
        self._program = program
        self._device = device
        self._stored: dict[Key, Any] = {("variable", name): tensor for name, tensor in variables.items()}
        self._run_time = Bound()
        self._code = {name: generate(section.graph, program.job, self._run_time) for name, section in program.sections.items()}
        self._asked = {key for section in program.sections.values() for key in section.inputs}
        self._is_whole = "step" in program.sections
        inputs = program.sections["step"].inputs if self._is_whole else ()
        self._bound = [self._stored.get(key) for key in inputs]
        self._changing = [(place, key) for place, key in enumerate(inputs) if key not in self._stored]

    def run(self, step: Step, feeds: Feeds) -> StepResult:
        """One step: forward, and for a train job backward and update."""
        values: dict[Key, Any] = {("rate", i): rate for i, rate in enumerate(step.rates)}
        values["unscale",] = 1.0 / step.scale
        if ("scale",) in self._asked:
            values["scale",] = torch.tensor(step.scale, device=self._device)
        if self._is_whole:
            micro, is_finite = [self._whole(self._micro(values, step, feeds, 0), step)], True
        else:
            micro, is_finite = self._in_sections({**self._stored, **values}, step, feeds)
        self._settle(step)
        return StepResult(_collected(micro, self._program.results), _collected(micro, self._program.watched), is_finite)

    def _whole(self, values: dict[Key, Any], step: Step) -> dict[Key, Any]:
        """Runs a program of one section; its outputs. What is stored stays where it is in the list of arguments, step by step."""
        arguments = self._bound.copy()
        for place, key in self._changing:
            arguments[place] = values[key]
        return dict(zip(self._program.sections["step"].outputs, self._call(self._code["step"], arguments, step)))

    def _micro(self, values: dict[Key, Any], step: Step, feeds: Feeds, number: int) -> dict[Key, Any]:
        """The values of one micro-batch. To random ops every micro-batch is a step of its own, so that no two share a mask."""
        own: dict[Key, Any] = {("feed", i): tensor for i, tensor in feeds[number].items()}
        if ("step",) in self._asked:
            own["step",] = torch.tensor([step.number * len(feeds) + number], device=self._device)
        return {**values, **own}

    def _in_sections(self, values: dict[Key, Any], step: Step, feeds: Feeds) -> tuple[list[dict[Key, Any]], bool]:
        self._section("prologue", values, step)
        micro: dict[int, dict[Key, Any]] = {}
        done: list[dict[Key, Any]] = []
        total: dict[Key, Any] = {}
        for part, number in self._program.schedule:
            if part == "forward":
                micro[number] = self._micro(values, step, feeds, number)
            self._section(part, micro[number], step)
            if part == "backward":
                done.append(self._finished(micro.pop(number), total))
        values.update(total)
        self._section("reduce", values, step)
        is_finite = self._program.finite is None or bool(values[self._program.finite])
        if is_finite:
            self._section("update", values, step)
        return done, is_finite

    def _finished(self, micro: dict[Key, Any], total: dict[Key, Any]) -> dict[Key, Any]:
        """Adds the gradients of a micro-batch to the total and keeps only what is sent back."""
        for key in self._program.gradients:
            total[key] = total[key] + micro[key] if key in total else micro[key]
        sent = {*self._program.results, *self._program.watched}
        return {key: value for key, value in micro.items() if key in sent}

    def _section(self, name: str, values: dict[Key, Any], step: Step) -> None:
        section: Section = self._program.sections[name]
        code = self._code[name]
        outputs = self._call(code, [values[key] for key in section.inputs], step)
        values.update(zip(section.outputs, outputs))

    def _call(self, code: Code, arguments: list[Any], step: Step) -> Any:
        try:
            return code.call(*arguments)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            node = failing_node(code, error)
            raise self._failure(step, node.meta["what"] if node is not None else "the program", error) from error

    def _settle(self, step: Step) -> None:
        """Waits until what was sent to other ranks has arrived."""
        try:
            self._run_time.settle()
        except RuntimeError as error:
            raise self._failure(step, "what it sends to other ranks", error) from error

    def _failure(self, step: Step, where: str, error: Exception) -> RunError:
        kind = PeerError if isinstance(error, PeerError) else RunError
        return kind(f"job {self._program.job!r} failed at step {step.number} in {where}: {error}")


def _collected(micro: list[dict[Key, Any]], keys: tuple[Key | None, ...]) -> list[list[torch.Tensor] | None]:
    return [None if key is None else [values[key] for values in micro] for key in keys]
