"""What the program of one rank costs: evaluated on tensors without data, call by call."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import flop_registry

from oneflow.engine.core.tree import tree_leaves, tree_map
from oneflow.engine.ir.nodes import argument
from oneflow.engine.plan.held import Exchange, Held, Memory, exchange_on
from oneflow.engine.program.notes import LocalNote, local_note
from oneflow.engine.program.program import Key, Program, Section

_EACH_MICRO_BATCH = ("micro_batch", "forward", "backward")


@dataclass(frozen=True)
class Sent:
    """A collective of a rank's program: why it is there, what it calls, and how often a step makes it."""

    note: LocalNote
    target: Any
    exchange: Exchange
    times: int


@dataclass
class Measured:
    """One step of one rank. ``flops_of`` has the operations of each joint node, ``sent`` every collective in the order
    they come."""

    flops: int = 0
    peak: int = 0
    flops_of: Counter[fx.Node] = field(default_factory=Counter)
    sent: list[Sent] = field(default_factory=list)


class Calls:
    """Evaluates calls; equal calls, of whatever rank, once."""

    def __init__(self, device: torch.device) -> None:
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._device = device
        self._known: dict[Any, tuple[Any, int]] = {}

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int]:
        """The value of a call, and its floating-point operations."""
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Held)]
        key = target, _frozen(args), _frozen(kwargs)
        if key not in self._known:
            self._known[key] = self._evaluated(target, args, kwargs)
        made, flops = self._known[key]
        return _rebuilt(made, inputs, {}), flops

    def _evaluated(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, int]:
        fakes: list[torch.Tensor] = []

        def fake(value: Any) -> Any:
            if not isinstance(value, Held):
                return value
            fakes.append(torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device=self._device))
            return fakes[-1]

        with self._mode, torch.no_grad():
            args, kwargs = tree_map(fake, (args, kwargs))
            made = target(*args, **kwargs)
            count = flop_registry.get(getattr(target, "overloadpacket", None))
            flops = int(count(*args, **kwargs, out_val=made)) if count is not None else 0
        places = {t.untyped_storage()._cdata: number for number, t in enumerate(fakes)}
        return tree_map(lambda t: _Recipe.of(t, places) if isinstance(t, torch.Tensor) else t, made), flops


@dataclass(frozen=True)
class _Recipe:
    """How an output lies: in the memory of an input, or in new memory of so many bytes (outputs of one number share
    it)."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    shares: int | None
    number: int
    bytes: int

    @classmethod
    def of(cls, tensor: torch.Tensor, places: Mapping[int, int]) -> _Recipe:
        storage = tensor.untyped_storage()
        return cls(
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            places.get(storage._cdata),
            storage._cdata,
            storage.nbytes(),
        )


def _rebuilt(made: Any, inputs: list[Held], memories: dict[int, Memory]) -> Any:
    if isinstance(made, (list, tuple)):
        return [_rebuilt(item, inputs, memories) for item in made]
    if not isinstance(made, _Recipe):
        return made
    memory = (
        inputs[made.shares].memory if made.shares is not None else memories.setdefault(made.number, Memory(made.bytes))
    )
    return Held(made.shape, made.stride, made.dtype, memory)


def _frozen(value: Any) -> Any:
    if isinstance(value, Held):
        return value.shape, value.stride, value.dtype
    if isinstance(value, dict):
        return tuple((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    return type(value), value


# ------------------------------------------------------------------ one rank


def measure(program: Program, arguments: Mapping[Key, Any], calls: Calls, micro_batches: int) -> Measured:
    """Costs of a step of a rank whose program is given ``arguments``: tensors without data, and numbers."""
    return _Rank(program, calls, micro_batches).run(dict(arguments))


class _Rank:
    def __init__(self, program: Program, calls: Calls, micro_batches: int) -> None:
        self.program = program
        self.calls = calls
        self.micro_batches = micro_batches
        self.found = Measured()
        self.lasting = 0
        self.runs: dict[str, _Run] = {}

    def run(self, values: dict[Key, Any]) -> Measured:
        stored = {m for key, value in values.items() if key[0] == "variable" for m in _memories(value)}
        fed = {m for key, value in values.items() if key[0] != "variable" for m in _memories(value)}
        for name, section in self.program.sections.items():
            times = self.micro_batches if name in _EACH_MICRO_BATCH else 1
            self.runs[name] = self._section(section, values, times)
        base = _bytes(stored) + _bytes(fed) * self.micro_batches + self.lasting
        self.found.peak = base + (self.runs["step"].peak if "step" in self.runs else self._in_sections())
        return self.found

    def _section(self, section: Section, values: dict[Key, Any], times: int) -> _Run:
        run = _Run(section.graph, [values[key] for key in section.inputs])
        for node in run:
            self._call(node, run, times)
        values.update(zip(section.outputs, run.outputs))
        return run

    def _call(self, node: fx.Node, run: _Run, times: int) -> None:
        args, kwargs = run.arguments(node)
        if node.target in (operator.getitem, float):
            run.make(node, args[0][args[1]] if node.target is operator.getitem else 0.0)
            return
        made = exchange_on(self.program.rank, node.target, args, kwargs)
        if made is None:
            value, flops = self.calls.call(node.target, args, kwargs)
            self.found.flops += flops * times
            source = local_note(node).node
            if flops and source is not None:
                self.found.flops_of[source] += flops * times
            run.make(node, value)
            return
        self.found.sent.append(Sent(local_note(node), node.target, made, times))
        self.lasting += made.lasting
        run.make(node, made.value, made.workspace, made.kept)

    def _in_sections(self) -> int:
        """The most that is held at once beyond arguments, as the executor runs the sections."""
        runs = self.runs
        last = runs.get("micro_batch") or runs["backward"]
        always, peak, open_micro, total = runs["prologue"].left, runs["prologue"].peak, 0, 0
        for part, _ in self.program.schedule:
            summed = 0 if part == "forward" else total  # the sums so far and the new ones are there together
            opened = open_micro * runs["forward"].left if open_micro else 0
            peak = max(peak, always + total + opened + runs[part].peak + summed)
            always += runs[part].in_flight
            open_micro += {"forward": 1, "backward": -1}.get(part, 0)
            total = total if part == "forward" else _bytes(last.made_here)
        held = always + total
        return max(peak, held + runs["reduce"].peak, held + runs["reduce"].left + runs["update"].peak)


class _Run:
    """The walk over one graph: values, and the memory they hold. Iterating gives the nodes to call; a value is dropped
    after its last use."""

    def __init__(self, graph: fx.Graph, inputs: list[Any]) -> None:
        self.graph = graph
        self.values: dict[fx.Node, Any] = dict(zip((n for n in graph.nodes if n.op == "placeholder"), inputs))
        self.borrowed = {m for value in inputs for m in _memories(value)}
        self.live = 0
        self.peak = 0
        self.outputs: list[Any] = []
        self.kept: set[Memory] = set()
        self._holders: Counter[Memory] = Counter()

    def __iter__(self) -> Iterator[fx.Node]:
        last = _last_uses(self.graph)
        for node in self.graph.nodes:
            if node.op == "call_function":
                yield node
                for dead in last[node]:
                    self._drop(self.values.pop(dead))
            elif node.op == "output":
                self.outputs = [self.values[n] for n in argument(node, 0)]

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__)
        return tuple(args), dict(kwargs)

    def make(self, node: fx.Node, value: Any, workspace: int = 0, kept: Iterable[Memory] = ()) -> None:
        self.values[node] = value
        self._hold(_memories(value))
        new = [memory for memory in kept if memory not in self.kept]
        self.kept.update(new)
        self._hold(new)
        self.peak = max(self.peak, self.live + workspace)

    def _hold(self, memories: Iterable[Memory]) -> None:
        for memory in memories:
            if memory not in self.borrowed:
                self._holders[memory] += 1
                self.live += memory.bytes if self._holders[memory] == 1 else 0

    def _drop(self, value: Any) -> None:
        for memory in _memories(value):
            if memory not in self.borrowed:
                self._holders[memory] -= 1
                self.live -= memory.bytes if not self._holders[memory] else 0

    @property
    def made_here(self) -> set[Memory]:
        """The new memory of the outputs."""
        return {m for value in self.outputs for m in _memories(value) if m not in self.borrowed}

    @property
    def left(self) -> int:
        """What the outputs hold when it has run, but for what stays in flight."""
        return _bytes(self.made_here - self.kept)

    @property
    def in_flight(self) -> int:
        """What stays until the end of the step, because it is still being sent."""
        return _bytes(self.kept - self.borrowed)


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each node the values that no later one reads, its own among them if none does; arguments are kept by the
    caller."""
    seen: set[fx.Node] = set()
    last: dict[fx.Node, list[fx.Node]] = {}
    for node in reversed(list(graph.nodes)):
        reads = [n for n in (*node.all_input_nodes, node) if n not in seen]
        seen.update(reads)
        last[node] = [n for n in reads if n.op == "call_function"]
    return last


def _memories(value: Any) -> list[Memory]:
    return [leaf.memory for leaf in tree_leaves(value) if isinstance(leaf, Held)]


def _bytes(memories: Iterable[Memory]) -> int:
    return sum(memory.bytes for memory in set(memories))
