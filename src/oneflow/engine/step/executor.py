"""Runs the SPMD program of one rank: no driver, no copy, no thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from oneflow.engine.collective import Bound, exchange
from oneflow.engine.core.errors import PeerError, RunError
from oneflow.engine.ops.cpu.native_sequence import RunningSequence
from oneflow.engine.ops.cpu.native_sequence import Sequence as NativeSequence
from oneflow.engine.program.describe import what_of
from oneflow.engine.program.program import Key, Program, Section
from oneflow.engine.step.codegen import Bind, Code, generate
from oneflow.engine.step.rank_variables import RankVariables

_HELD = ("variable", "prepared")


class StepNumbers(NamedTuple):
    """The numbers of a step that all ranks share."""

    number: int
    rates: tuple[float, ...]
    scale: float


class StepResult(NamedTuple):
    """This rank's parts of results and of watched values, for each micro-batch those that it answers for; and whether
    the gradients were finite."""

    results: Sequence[Sequence[torch.Tensor]]
    watched: Sequence[Sequence[torch.Tensor]]
    is_finite: bool


class Executor:
    """A program with its variables bound. ``run`` is one step. ``for_autograd``: its results are tensors that autograd
    may go on from, and writes into variables are seen by it; otherwise torch's inference mode spares what that
    costs."""

    def __init__(self, program: Program, variables: RankVariables, for_autograd: bool = False) -> None:
        self.device = variables.device
        self._program = program
        self._variables = variables
        self._mode = torch._C._AutoDispatchBelowAutograd if for_autograd else _inference_mode
        self._bound = Bound()
        self.code = {
            name: generate(section.graph, program.job, with_sequences(self._bound))
            for name, section in program.sections.items()
        }
        asked = {key for section in program.sections.values() for key in section.inputs}
        self._uses_step, self._uses_scale = ("step",) in asked, ("scale",) in asked
        self._stored = {key: variables.tensors[key[1]] for key in asked if key[0] == "variable"}
        self._prepared: tuple[int, list[Any]] = (-1, [])  # of which version, and what
        self._sends = any(
            node.target is exchange for section in program.sections.values() for node in section.graph.nodes
        )
        step = program.sections.get("step")
        self._whole = _Whole(program, step, self.code["step"], self._stored) if step is not None else None

    @property
    def source(self) -> str:
        """The Python that a step runs."""
        return "\n".join(code.source for code in self.code.values())

    def run(self, step: StepNumbers, feeds: Sequence[Sequence[torch.Tensor]]) -> StepResult:
        """One step: forward, and for a train job backward and update. ``feeds`` are for each micro-batch those that the
        program takes, in order."""
        whole = self._whole
        with self._mode():
            try:
                result = self._run_sections(step, feeds) if whole is None else self._run_whole(whole, step, feeds[0])
            finally:
                if self._program.writes:  # a step that failed may have changed variables too
                    self._variables.version += 1
            if self._sends:
                self._settle(step)
        return result

    # -------------------------------------------------------------- a step of one section

    def _run_whole(self, whole: _Whole, step: StepNumbers, feeds: Sequence[torch.Tensor]) -> StepResult:
        arguments: list[Any] = [*(self._held(whole, step) if whole.prepares else whole.held), *feeds]
        if self._uses_step:
            whole.step_number[0] = step.number
            arguments.append(whole.step.to(self.device))
        for number in whole.rates:
            arguments.append(step.rates[number])
        outputs = self._call(whole.code, arguments, step)
        return StepResult((outputs[: whole.results],), (outputs[whole.results :],), True)

    def _held(self, whole: _Whole, step: StepNumbers) -> list[Any]:
        """What a step holds, with what depends on variables alone as they are now. Threads that find it old may each
        make it anew."""
        version, held = self._prepared
        if version != self._variables.version:
            version = self._variables.version
            self._prepared, held = (-1, []), []  # lets go of the old before there is the new
            values = dict(self._stored)
            self._section("prepare", values, step)
            held = whole.of(values)
            self._prepared = version, held
        return held

    # -------------------------------------------------------------- micro-batches

    def _run_sections(self, step: StepNumbers, feeds: Sequence[Sequence[torch.Tensor]]) -> StepResult:
        values: dict[Key, Any] = {**self._stored, ("unscale",): 1.0 / step.scale}
        values.update({("rate", i): rate for i, rate in enumerate(step.rates)})
        if self._uses_scale:
            values["scale",] = torch.tensor(step.scale, device=self.device)
        self._section("prologue", values, step)
        done, total = self._micro_batches(values, step, feeds)
        values.update(zip(self._program.gradients, total))
        self._section("reduce", values, step)
        is_finite = self._program.finite is None or bool(values[self._program.finite])
        if is_finite:
            self._section("update", values, step)
        return StepResult(_each(done, self._program.results), _each(done, self._program.watched), is_finite)

    def _micro_batches(
        self, values: dict[Key, Any], step: StepNumbers, feeds: Sequence[Sequence[torch.Tensor]]
    ) -> tuple[list[dict[Key, Any]], list[torch.Tensor]]:
        """What every micro-batch sends back, and the sums of their gradients."""
        under_way: dict[int, dict[Key, Any]] = {}
        done: list[dict[Key, Any]] = []
        total: list[torch.Tensor] = []
        for part, number in self._program.schedule:
            if part != "backward":
                under_way[number] = self._micro_batch(values, step, feeds, number)
            self._section(part, under_way[number], step)
            if part != "forward":
                micro = under_way.pop(number)
                kept = {key: micro[key] for key in (*self._program.results, *self._program.watched) if key is not None}
                _add(total, micro, self._program.gradients, len(done))
                done.append(kept)
                del micro  # before the next one begins
        return done, total

    def _micro_batch(
        self, values: dict[Key, Any], step: StepNumbers, feeds: Sequence[Sequence[torch.Tensor]], number: int
    ) -> dict[Key, Any]:
        """The values of one micro-batch. To random ops every micro-batch is a step of its own, so that no two share a
        mask."""
        own: dict[Key, Any] = {("feed", i): tensor for i, tensor in zip(self._program.feeds, feeds[number])}
        if self._uses_step:
            own["step",] = torch.tensor([step.number * len(feeds) + number], device=self.device)
        return {**values, **own}

    def _section(self, name: str, values: dict[Key, Any], step: StepNumbers) -> None:
        section = self._program.sections[name]
        values.update(zip(section.outputs, self._call(self.code[name], [values[key] for key in section.inputs], step)))

    # -------------------------------------------------------------- calls

    def _call(self, code: Code, arguments: list[Any], step: StepNumbers) -> Any:
        try:
            return code.call(*arguments)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            node = _failing_node(code, error)
            raise self._failure(step, what_of(node) if node is not None else "the program", error) from error

    def _settle(self, step: StepNumbers) -> None:
        """Waits until what was sent to other ranks has arrived."""
        try:
            self._bound.settle()
        except RuntimeError as error:
            raise self._failure(step, "what it sends to other ranks", error) from error

    def _failure(self, step: StepNumbers, where: str, error: Exception) -> RunError:
        kind = PeerError if isinstance(error, PeerError) else RunError
        return kind(f"job {self._program.job!r} failed at step {step.number} in {where}: {error}")


def with_sequences(others: Bind) -> Bind:
    """What code runs with in the place of a constant or function: of a sequence what runs it, of anything else what
    ``others`` say."""
    return lambda thing: RunningSequence(thing) if isinstance(thing, NativeSequence) else others(thing)


def _inference_mode() -> Any:
    """``torch.inference_mode()`` without the classes around it."""
    return torch._C._InferenceMode(True)


class _Whole:
    """A step of one section: what it holds from step to step comes first among its arguments, and stays in its place.
    Its outputs are so many ``results``, then watched values."""

    def __init__(self, program: Program, section: Section, code: Code, stored: dict[Key, torch.Tensor]) -> None:
        self.code = code
        self.rates = [key[1] for key in section.inputs if key[0] == "rate"]
        self.step = torch.zeros(1, dtype=torch.int64)
        self.step_number = self.step.numpy()  # the same memory; a numpy number is set in a tenth of the time
        self.prepares = "prepare" in program.sections
        self.results = sum(key is not None for key in program.results)
        self._keys = [key for key in section.inputs if key[0] in _HELD]
        self.held = [] if self.prepares else self.of(stored)

    def of(self, values: Mapping[Key, Any]) -> list[Any]:
        """What it holds, in the order of its arguments."""
        return [values[key] for key in self._keys]


def _add(total: list[torch.Tensor], micro: dict[Key, Any], keys: tuple[Key, ...], count: int) -> None:
    """Adds the gradients of a micro-batch to their sums, one at a time: a gradient goes when its sum is there. The
    first two make a sum of its own, since a gradient may be a result too; later ones are added in place."""
    for place, key in enumerate(keys):
        gradient = micro.pop(key)
        if place == len(total):
            total.append(gradient)
        elif count == 1:
            total[place] = total[place] + gradient
        else:
            total[place].add_(gradient)


def _each(micro: list[dict[Key, Any]], keys: tuple[Key | None, ...]) -> list[list[torch.Tensor]]:
    """Of each micro-batch the values of these keys, those that this rank has."""
    return [[values[key] for key in keys if key is not None] for values in micro]


def _failing_node(code: Code, error: Exception) -> fx.Node | None:
    """The node whose line of generated code raised."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == code.filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return code.node_at.get(line)
