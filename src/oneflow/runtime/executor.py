"""Runs a program on one device, in this process: no copy, no thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from oneflow.compiler.codegen import Code, generate
from oneflow.compiler.program import Program
from oneflow.core.errors import RunError
from oneflow.optimizer.loss_scale import LossScale
from oneflow.runtime.variables import VariableStore

Results = tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]


class Counter:
    """The step count of a job: a tensor of shape (1,) in main memory, which for a train job is a saved variable."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._count = tensor.numpy()  # the same memory; a numpy number is read and raised in a tenth of the time

    def value(self) -> int:
        return int(self._count[0])

    def advance(self) -> None:
        self._count[0] += 1


class RunningScale:
    """The loss scale of a job as it runs: fixed, or kept in two saved variables of the job, the scale and the good steps since it changed."""

    def __init__(self, loss_scale: LossScale, state: tuple[torch.Tensor, torch.Tensor] | None) -> None:
        self._loss_scale = loss_scale
        self._state = state

    def value(self) -> float:
        return float(self._state[0]) if self._state is not None else self._loss_scale.initial

    def adjust(self, finite: bool) -> None:
        """Notes whether the gradients of a step were finite."""
        if self._state is None:
            return
        scale, good = self._loss_scale.adjusted(float(self._state[0]), int(self._state[1]), finite)
        self._state[0].fill_(scale)
        self._state[1].fill_(good)


class Executor:
    """A program with its variables bound. ``run`` is one step."""

    def __init__(self, program: Program, store: VariableStore, device: torch.device, counter: Counter) -> None:
        self._program = program
        self._store = store
        self._variables = [store.tensors[name] for name in program.variables]
        self._device = device
        self._counter = counter
        self._code = generate(program.graph, program.job)
        self._update = generate(program.update, program.job) if program.update is not None else None
        self._prepare = generate(program.prepare, program.job) if program.prepare is not None else None
        self._prepared: tuple[int, Sequence[torch.Tensor]] = (-1, ())

    @property
    def source(self) -> str:
        """The Python that a step runs."""
        return self._code.source

    def run(self, feeds: list[torch.Tensor]) -> Results:
        """One step: forward, and for a train job backward and update."""
        t = self._counter.value()
        with torch.inference_mode():
            arguments = [*self._arguments(feeds), *[rate(t) for rate in self._program.rates]]
            try:
                outputs = self._call(self._code, arguments)
            finally:
                self._note_writes()
        self._counter.advance()
        return outputs

    def _note_writes(self) -> None:
        """A step that failed may have changed variables too."""
        if self._program.writes:
            self._store.version += 1

    def _held(self) -> Sequence[torch.Tensor]:
        """What the step reads besides its feeds: the variables, or what was prepared of them as they are now."""
        if self._prepare is None:
            return self._variables
        version = self._store.version
        if self._prepared[0] != version:
            self._prepared = (-1, ())  # lets go of the old before there is the new
            self._prepared = (version, self._call(self._prepare, self._variables))
        return self._prepared[1]

    def _arguments(self, feeds: list[torch.Tensor], step: torch.Tensor | None = None) -> list[Any]:
        arguments = [*self._held(), *feeds]
        if self._program.uses_step:
            arguments.append((self._counter.tensor if step is None else step).to(self._device))
        return arguments

    def _call(self, code: Code, arguments: list[Any]) -> Any:
        try:
            return code.call(*arguments)
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise RunError(self._explain(code, error)) from error

    def _explain(self, code: Code, error: Exception) -> str:
        """The failing op of the job and the user's line."""
        node = failing_node(code, error)
        step = self._counter.value()
        where = what_of(node) if node is not None else "the program"
        return f"job {self._program.job!r} failed at step {step} in {where}: {error}"


def failing_node(code: Code, error: Exception) -> fx.Node | None:
    """The node whose line of generated code raised."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == code.filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return code.node_at.get(line)


def what_of(node: fx.Node) -> str:
    """What a node of a program is to the user: an op and its line, the backward of one, an update, or a change of layout."""
    source = node.meta.get("node", node)
    origin = source.meta.get("origin")
    if "what" in node.meta or origin is None:
        return node.meta.get("what") or (
            f"the boxing of {node.meta['boxed'].name}" if "boxed" in node.meta else f"the backward pass ({node.target})"
        )
    part = "the backward of " if source.meta.get("part") == "backward" else ""
    return f"{part}op {origin.meta['name']!r} ({origin.target}) from {origin.meta['line']}"


class AccumulatingExecutor(Executor):
    """Runs a program in two parts: gradients of every micro-batch, then one update, unless a dynamic loss scale forbids it."""

    def __init__(
        self,
        program: Program,
        store: VariableStore,
        device: torch.device,
        counter: Counter,
        scale: RunningScale,
    ) -> None:
        super().__init__(program, store, device, counter)
        self._scale = scale

    def run(self, feeds: list[torch.Tensor], micro_feeds: Sequence[list[torch.Tensor]] = ()) -> Results:
        t = self._counter.value()
        with torch.inference_mode():
            try:
                parts, finite = self._accumulate(list(micro_feeds) or [feeds], t)
            finally:
                self._note_writes()
            self._scale.adjust(finite)
        self._counter.advance()
        return tuple(_packed([p[i] for p in parts]) for i in (0, 1))  # type: ignore[return-value]

    def _accumulate(self, micro_feeds: list[list[torch.Tensor]], t: int) -> tuple[list[Any], bool]:
        """Gradients and update: what every micro-batch gave, and whether the update was made."""
        parts, gradients, finite = self._gradients(micro_feeds)
        if finite:
            rates = [rate(t) for rate in self._program.rates]
            assert self._update is not None
            self._call(self._update, [*self._variables, *gradients, 1.0 / self._scale.value(), *rates])
        return parts, finite

    def _gradients(self, micro_feeds: list[list[torch.Tensor]]) -> tuple[list[Any], list[torch.Tensor], bool]:
        parts: list[Any] = []
        total: list[torch.Tensor] = []
        finite = True
        for i, feeds in enumerate(micro_feeds):
            # To random ops every micro-batch is a step of its own, so that no two share a mask.
            arguments = self._arguments(feeds, self._counter.tensor * len(micro_feeds) + i)
            if self._program.dynamic_scale:
                arguments.append(torch.tensor(self._scale.value(), device=self._device))
            results, watched, gradients, is_finite = self._call(self._code, arguments)
            parts.append((results, watched))
            finite = finite and (is_finite is None or bool(is_finite))
            total = list(torch._foreach_add(total, gradients)) if total else list(gradients)
        return parts, total, finite


def _packed(parts: list[tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    """The results of all micro-batches, put together along the first dim."""
    return parts[0] if len(parts) == 1 else tuple(torch.cat(values) for values in zip(*parts))
