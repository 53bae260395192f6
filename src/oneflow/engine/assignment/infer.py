"""SBP inference (sharding propagation, automatic parallelisation): a signature for every node, chosen by the cost of
the whole step.

One axis of the placements after the other. Along an axis the nodes are walked in order with the best partial
assignments so far. Two assignments that agree on every value still in use differ in nothing that follows, so only the
cheaper is kept; of the rest the cheapest ``_WIDTH``, and the cheapest for every layout of what was made last. A choice
whose price comes later (a partial sum that must be reduced one day) so stays in the race with one that pays now.

What came whole is never split for its own sake: splits come from inputs, data, variables and hints, and from where a
single device hands over to several: there whole was no choice. Where all is free (``compiler/auto.py``), anything may
be split.
"""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import fx

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.sbp import AUTO, BROADCAST, PARTIAL, Sbp, parse_layout
from oneflow.engine.program.calls import call_of, tensor_arguments
from oneflow.engine.program.notes import Value, change_joint_note, joint_note, val, value_of
from oneflow.engine.sharding import cost
from oneflow.engine.sharding.call import Call, nbytes
from oneflow.engine.sharding.mesh import Layout, Mesh, NdSbp
from oneflow.engine.sharding.rules.rule import Rule, Signature, whole
from oneflow.engine.sharding.rules.table import rule_of
from oneflow.engine.sharding.writes import any_layout, copies, shares_memory, written

_WIDTH = 24
_DRAWN = 1e12  # far above the cost of any small program
_ROUNDED = 1 + 1e-9  # sums of the same prices in another order
_LAYOUT = torch.ops.oneflow.layout.default

Held = tuple[tuple[Mesh, Sbp], ...]  # the layouts a value is there in, the one it was made in first


@dataclass(frozen=True)
class Given:
    """How a placeholder lies, with AUTO where the search may choose; ``splits`` are the dims along which it may choose
    to split (None: any)."""

    sbp: NdSbp
    splits: frozenset[int] | None = None


@dataclass(frozen=True)
class Wanted:
    """How the value of a node must lie in the end. Where that is AUTO, it is to lie as the placeholder ``follows``
    does."""

    node: fx.Node
    layout: Layout
    follows: fx.Node


@dataclass(frozen=True)
class Search:
    """How a search goes: what it weighs, the ``free`` axes, along which what came whole may be split anywhere, whether
    hints of layouts count, how many bytes a byte of an argument stands for where that is not one (a variable has
    states), and the total above which nobody wants to know what it finds. ``shared`` are products that ranks make each
    some rows of where all of them have both factors. With a ``seed`` a pseudo-random signature of each node wins,
    whatever it costs: tests force splits that the cost model would not choose at their size."""

    prices: cost.Prices = cost.USUAL
    free: frozenset[int] = frozenset()
    ignores_hints: bool = False
    copies: Mapping[fx.Node, float] = field(default_factory=dict)
    limit: float = math.inf
    shared: frozenset[fx.Node] = frozenset()
    seed: int | None = None


USUAL = Search()


@dataclass(frozen=True)
class Estimate:
    """What an assignment costs each rank, in bytes sent or as much as they: ``work`` done and bytes ``moved``."""

    work: float
    moved: float

    @property
    def total(self) -> float:
        return self.work + self.moved


def infer(
    graph: fx.Graph,
    given: Mapping[fx.Node, Given],
    wanted: Sequence[Wanted],
    micro_batches: int = 1,
    search: Search = USUAL,
) -> Estimate | None:
    """Notes on each node one signature per axis of its mesh, and the share of its work that each rank does. None as
    soon as it is sure that what it finds costs more than the limit of the search.

    Relies on a joint graph without writes, a mesh noted on each node. ``given`` are the layouts of placeholders,
    ``wanted`` those that values must have in the end, once for all ``micro_batches``. Leaves signatures that fit each
    other with boxing between them.
    """
    calls = {node: call_of(node, joint_note(node).placed.size) for node in _in_order_of_use(graph)}
    whole_work = {node: cost.whole_work(call) for node, call in calls.items()}
    for node in calls:
        change_joint_note(node, signatures=(), share=1.0)
    moved = 0.0
    for axis in range(max(len(joint_note(node).placed.axes) for node in calls)):
        more = _Axis(axis, calls, whole_work, given, wanted, micro_batches, search).choose(moved)
        if more is None:
            return None
        moved += more
    work = sum(joint_note(node).share * whole_work[node] for node in calls) * micro_batches * search.prices.work
    return Estimate(work, moved)


def _in_order_of_use(graph: fx.Graph) -> list[fx.Node]:
    """All nodes that make values, each placeholder right before its first user: a free choice is made where it
    matters."""
    found: dict[fx.Node, None] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            found.update(dict.fromkeys(n for n in node.all_input_nodes if n.op == "placeholder"))
            found[node] = None
    found.update(dict.fromkeys(n for n in graph.nodes if n.op == "placeholder"))
    return list(found)


class _Option(NamedTuple):
    """One signature of a node, wherever its inputs lie: the prices of its work and of its own collectives, the least of
    that work that later axes leave, and the layouts it asks for. ``made`` are those of its outputs, ``key`` and
    ``held`` their share of the key and of the memory of an assignment."""

    signature: Signature
    work: float
    inside: float
    least: float
    wishes: list[tuple[Value, Mesh, Sbp, bool]]
    made: dict[Value, Held]
    key: int
    held: float


class _Way(NamedTuple):
    """One signature of a node, from values that lie in certain ways: the price of its work with what it moves and
    holds, of what it moves alone, what is sure to be counted for it in the end, the layouts that values get by it, and
    how the key of an assignment changes."""

    signature: Signature
    price: float
    moved: float
    sure: float
    changed: dict[Value, Held]
    key: int


class _State(NamedTuple):
    """A partial assignment: what it cost, what of that is ``sure`` to be counted in the end, its last step, and the
    layouts of the values that later nodes read. Equal keys are equal layouts."""

    cost: float
    key: int
    sure: float
    held: dict[Value, Held]
    before: _State | None = None
    way: _Way | None = None


class _Next(NamedTuple):
    """A state and a way on from it. Most are too many to keep and never become states."""

    cost: float
    key: int
    before: _State
    way: _Way


class _Sink(NamedTuple):
    """What an output of a node must be in the end: ``sbp``, or where that is AUTO as ``follows`` lies."""

    value: Value
    mesh: Mesh
    sbp: Sbp
    follows: Value


@dataclass
class _Visit:
    """One node of the walk: its ways to run and what it reads for the last time."""

    node: fx.Node
    mesh: Mesh
    parts: int
    options: list[_Option]
    least: float  # of its work, whatever is chosen
    inputs: list[Value]
    counted: list[int]  # the inputs that can make it worth splitting: all but those that every rank has anyway
    written: list[int]
    dies: list[Value] = field(default_factory=list)
    sinks: list[_Sink] = field(default_factory=list)

    def looked_at(self) -> list[Value]:
        """The values made before whose layouts decide what its ways cost."""
        return [*self.inputs, *(sink.follows for sink in self.sinks if sink.sbp is AUTO)]


class _Axis:
    """The search along one axis."""

    def __init__(
        self,
        axis: int,
        calls: Mapping[fx.Node, Call],
        whole_work: Mapping[fx.Node, float],
        given: Mapping[fx.Node, Given],
        wanted: Sequence[Wanted],
        repeats: int,
        search: Search,
    ) -> None:
        self.axis = axis
        self.repeats = repeats
        self.given = given
        self.search = search
        self.prices = search.prices
        self.width = _WIDTH if search.seed is None else 1
        self.whole_work = whole_work
        self.boxing: dict[tuple[Value, int, Mesh, Sbp, bool], float] = {}
        self.layouts: dict[Held, Held] = {}  # equal ones are one object
        self.grown: dict[tuple[int, Mesh, Sbp], Held] = {}  # what these become with one layout more
        self.visits = [self._visit(node, call) for node, call in calls.items()]
        self._note_sinks(wanted)
        self._note_last_uses()

    def choose(self, before: float) -> float | None:
        """Notes the cheapest assignment; gives the price of what it moves. None once it is sure that with the price
        ``before`` of axes before this one it is above the limit."""
        states = [_State(0.0, 0, 0.0, {})]
        to_come = before + sum(step.least for step in self.visits)
        for step in self.visits:
            best: dict[int, _Next] = {}
            for state, ways in self._ways_on(states, step):
                for way in ways:
                    key, price = state.key ^ way.key, state.cost + way.price
                    other = best.get(key)
                    if other is None or price < other.cost:
                        best[key] = _Next(price, key, state, way)
            if not best:
                raise ArgumentError(_no_way(step.node))
            states = _settled(_kept(sorted(best.values(), key=_cost), self.width), step.dies)
            to_come -= step.least
            if min(state.sure for state in states) + to_come > self.search.limit * _ROUNDED:
                return None
        return self._keep(states[0])

    def _ways_on(self, states: Sequence[_State], step: _Visit) -> Iterator[tuple[_State, list[_Way]]]:
        """Each with its ways on; they are the same for all in which what the step looks at lies alike, which most
        do."""
        looked_at = step.looked_at()
        known: dict[tuple[int, ...], list[_Way]] = {}
        for state in states:
            alike = tuple(id(state.held[value]) for value in looked_at)
            if alike not in known:
                known[alike] = list(self._expand(state, step))
            yield state, known[alike]

    def _keep(self, state: _State) -> float:
        moved = []
        for step in reversed(self.visits):
            assert state.way is not None and state.before is not None
            note, signature = joint_note(step.node), state.way.signature
            share = note.share / step.parts if self._is_split(step.node, signature) else note.share
            change_joint_note(step.node, signatures=(*note.signatures, signature), share=share)
            moved.append(state.way.moved)
            state = state.before
        return sum(reversed(moved))

    # -------------------------------------------------------------- the walk

    def _expand(self, state: _State, step: _Visit) -> Iterator[_Way]:
        held = [state.held[value] for value in step.inputs]
        is_free = not step.counted or step.node.target is _LAYOUT  # made here, or asked for by the user
        made = [held[i][0] for i in step.counted]
        may_split = (
            self.axis in self.search.free
            or self.search.seed is not None
            or is_free
            or any(sbp.kind != "B" or (mesh.size == 1 and mesh != step.mesh) for mesh, sbp in made)
        )
        for option in step.options:
            if not may_split and any(sbp.kind != "B" for sbp in option.signature.outputs):
                continue
            if any(held[i][0] != (step.mesh, option.signature.inputs[i]) for i in step.written):
                continue
            yield self._way(state, step, option)

    def _way(self, state: _State, step: _Visit, option: _Option) -> _Way:
        changed, key, moved, held = dict(option.made), option.key, option.inside, option.held
        wishes = [*option.wishes, *((sink.value, sink.mesh, _wish(sink, state), True) for sink in step.sinks)]
        for value, mesh, sbp, is_last in wishes:
            have = changed.get(value) or state.held[value]
            if (mesh, sbp) not in have:
                once = is_last or joint_note(value[0]).is_stored  # not again for each micro-batch
                moved += self._price(value, have, mesh, sbp, is_last) * (1 if once else self.repeats)
                held += self._held(value, self._parts(mesh), sbp)
                changed[value] = self._with(have, mesh, sbp)
                key ^= _key(value, have) ^ _key(value, changed[value])
        for value in step.dies:
            key ^= _key(value, changed.get(value) or state.held[value])
        return _Way(option.signature, option.work + moved + held, moved, option.least + moved, changed, key)

    def _one(self, layouts: Held) -> Held:
        return self.layouts.setdefault(layouts, layouts)

    def _with(self, have: Held, mesh: Mesh, sbp: Sbp) -> Held:
        """The layouts of a value, and one more."""
        key = (id(have), mesh, sbp)
        found = self.grown.get(key)
        if found is None:
            found = self.grown[key] = self._one((have[0], *sorted({*have[1:], (mesh, sbp)}, key=_order)))
        return found

    def _held(self, value: Value, parts: int, sbp: Sbp) -> float:
        """The price of the memory that a value takes in one layout."""
        if not self.prices.held or _shares_memory(value[0]):
            return 0.0
        size = nbytes(_tensor(value)) * joint_note(value[0]).share * self.search.copies.get(value[0], 1.0)
        return self.prices.held * (size / parts if sbp.kind == "S" else size)

    def _price(self, value: Value, have: Held, mesh: Mesh, sbp: Sbp, is_last: bool) -> float:
        """What it costs to have a value in one more layout, from the cheapest it is there in."""
        found = self.boxing.get((value, id(have), mesh, sbp, is_last))
        if found is None:
            size = nbytes(_tensor(value)) * joint_note(value[0]).share
            parts = self._parts(mesh)
            found = min(
                cost.boxing(source, sbp, size, parts, is_last, self.prices)
                if m == mesh
                else cost.transfer(source, sbp, size, parts, self.prices)
                for m, source in have
            )
            self.boxing[value, id(have), mesh, sbp, is_last] = found
        return found

    # -------------------------------------------------------------- what there is to choose

    def _visit(self, node: fx.Node, call: Call) -> _Visit:
        note = joint_note(node)
        mesh = note.placed
        parts = self._parts(mesh)
        tensors = tensor_arguments(node)
        inputs = [value_of(n) for n in tensors]
        counted = [i for i, n in enumerate(tensors) if not joint_note(n).everywhere]
        whole_ones = [i for i, n in enumerate(tensors) if joint_note(n).everywhere]
        signatures = [
            s for s in self._signatures(node, call, parts) if all(s.inputs[i] is BROADCAST for i in whole_ones)
        ]
        boxed = [i for i, value in enumerate(inputs) if not joint_note(value[0]).everywhere]
        options = [
            self._option(node, s, parts, [(inputs[i], mesh, s.inputs[i], False) for i in boxed]) for s in signatures
        ]
        return _Visit(
            node, mesh, parts, options, min(option.least for option in options), inputs, counted, written(call)
        )

    def _option(
        self, node: fx.Node, signature: Signature, parts: int, wishes: list[tuple[Value, Mesh, Sbp, bool]]
    ) -> _Option:
        note = joint_note(node)
        each = note.share * self.repeats * self.prices.work / (parts if self._is_split(node, signature) else 1)
        later = math.prod(note.placed.axes[self.axis + 1 :])
        made = {(node, index): self._one(((note.placed, sbp),)) for index, sbp in enumerate(signature.outputs)}
        key = functools.reduce(operator.xor, (_key(*one) for one in made.items()), 0)
        held = sum(self._held(value, parts, sbp) for value, sbp in zip(made, signature.outputs))
        work = (self.whole_work[node] + cost.extra_work(signature)) * each
        return _Option(
            signature,
            work + self._drawn(node, signature),
            cost.inside(signature, self.prices) * self.repeats,
            self.whole_work[node] * each / later,
            wishes,
            made,
            key,
            held,
        )

    def _drawn(self, node: fx.Node, signature: Signature) -> float:
        """A price above all others, drawn from the seed: the same in every process."""
        if self.search.seed is None:
            return 0.0
        text = f"{self.search.seed} {self.axis} {node.name} {signature.inputs} {signature.outputs}"
        return _DRAWN * int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48

    def _is_split(self, node: fx.Node, signature: Signature) -> bool:
        """Whether each rank does a part of a node's work."""
        return cost.is_split(signature) or node in self.search.shared

    def _parts(self, mesh: Mesh) -> int:
        return mesh.axes[self.axis] if self.axis < len(mesh.axes) else 1

    def _signatures(self, node: fx.Node, call: Call, parts: int) -> list[Signature]:
        if node.op == "placeholder":
            return [Signature((), (sbp,)) for sbp in self._given(node, parts)]
        if parts == 1:
            return [whole(call)]
        if node.target is _LAYOUT:
            return self._hinted(node, call)
        if node.target is torch.ops.aten.copy_.default:
            return copies(call, parts)
        rule = rule_of(node.target)
        change_joint_note(node, has_rule=rule is not None)
        found = [whole(call), *(self._split(node, call, parts, rule) if rule is not None else ())]
        before = {s.lower for s in joint_note(node).signatures if s.lower is not None}
        # Two axes may split one call, but not by two lowerings of different kinds.
        return [s for s in found if s.lower is None or not before or s.lower in before]

    def _split(self, node: fx.Node, call: Call, parts: int, rule: Rule) -> Iterable[Signature]:
        """The ways to split a call along this axis. A dim that an axis before has split may be split again only where
        all ranks of the mesh could share it."""
        if parts == call.parts:
            return rule.signatures(call)
        earlier = joint_note(node).signatures
        every: dict[Any, Signature] = {(s.inputs, s.outputs): s for s in rule.signatures(call)} if earlier else {}
        own = rule.signatures(Call(call.op, call.args, call.kwargs, call.result, parts))
        return [
            s for s in own if (s.inputs, s.outputs) in every or not any(_splits_again(s, other) for other in earlier)
        ]

    def _given(self, node: fx.Node, parts: int) -> list[Sbp]:
        if joint_note(node).everywhere or parts == 1:
            return [BROADCAST]
        given = self.given[node]
        sbp = given.sbp[self.axis]
        if sbp is not AUTO:
            return [sbp]
        free = [s for s in any_layout(val(node).shape, parts) if s is not PARTIAL]
        return [s for s in free if given.splits is None or s.dim is None or s.dim in given.splits]

    def _hinted(self, node: fx.Node, call: Call) -> list[Signature]:
        hint = parse_layout(str(node.args[1]))
        if hint is None or self.search.ignores_hints:
            return [Signature((sbp,), (sbp,)) for sbp in any_layout(call.out, call.parts)]
        sbp = hint[min(self.axis, len(hint) - 1)]
        if sbp is AUTO:
            return [Signature((sbp,), (sbp,)) for sbp in any_layout(call.out, call.parts)]
        if sbp.kind == "S" and (sbp.dim is None or sbp.dim >= len(call.out)):
            raise ArgumentError(f"{_where(node)}a value of shape {call.out} cannot be split along dim {sbp.dim}")
        return [Signature((sbp,), (sbp,))]

    # -------------------------------------------------------------- lifetimes

    def _note_sinks(self, wanted: Sequence[Wanted]) -> None:
        """What a value must be in the end is paid for where it is made."""
        steps = {step.node: step for step in self.visits}
        for one in wanted:
            value, layout = value_of(one.node), one.layout
            sbp = layout.sbp[self.axis] if self.axis < len(layout.sbp) else BROADCAST
            steps[value[0]].sinks.append(_Sink(value, layout.mesh, sbp, (one.follows, 0)))

    def _note_last_uses(self) -> None:
        last: dict[Value, _Visit] = {}
        for step in self.visits:
            last.update(dict.fromkeys([(step.node, i) for i in range(len(step.options[0].made))], step))
            last.update(dict.fromkeys([*step.inputs, *(sink.follows for sink in step.sinks if sink.sbp is AUTO)], step))
        for value, step in last.items():
            step.dies.append(value)


def _kept(found: list[_Next], width: int) -> list[_Next]:
    """Those to go on from, of all in the order of their costs."""
    others: dict[tuple[Sbp, ...], _Next] = {}
    for one in found[width:]:
        others.setdefault(one.way.signature.outputs, one)
    return [*found[:width], *others.values()]


def _settled(found: Sequence[_Next], dies: Iterable[Value]) -> list[_State]:
    """The states behind these ways, without the values that nothing reads any more. The last of those that come from
    one state takes over what it held."""
    heirs = {id(one.before): one for one in found}
    states = []
    for one in found:
        before, way = one.before, one.way
        held = before.held if heirs[id(before)] is one else dict(before.held)
        held.update(way.changed)
        for value in dies:
            del held[value]
        states.append(_State(one.cost, one.key, before.sure + way.sure, held, before, way))
    return states


def _cost(found: _Next) -> float:
    return found.cost


def _key(value: Value, held: Held) -> int:
    """A value's share of the key of an assignment. Equal layouts are one object, which its address tells without a look
    at the ranks of meshes."""
    return hash((value, id(held)))


def _wish(sink: _Sink, state: _State) -> Sbp:
    return state.held[sink.follows][0][1] if sink.sbp is AUTO else sink.sbp


def _order(held: tuple[Mesh, Sbp]) -> tuple[Any, ...]:
    mesh, sbp = held
    return mesh.ranks, mesh.axes, str(sbp)


def _tensor(value: Value) -> Any:
    made = val(value[0])
    return made[value[1]] if isinstance(made, (tuple, list)) else made


def _shares_memory(node: fx.Node) -> bool:
    """Whether a node's value lies in memory that is counted elsewhere."""
    return joint_note(node).everywhere or (node.op == "call_function" and shares_memory(node.target))


def _splits_again(one: Signature, other: Signature) -> bool:
    """Whether two axes would split one dim of a value."""
    pairs = (*zip(one.inputs, other.inputs), *zip(one.outputs, other.outputs))
    return any(a is b and a.kind == "S" for a, b in pairs)


def _where(node: fx.Node) -> str:
    origin = joint_note(node).origin
    return f"{origin.line}: op {origin.name!r}: " if origin is not None else ""


def _no_way(node: fx.Node) -> str:
    return f"{_where(node)}it changes a variable that lies elsewhere or otherwise; keep it whole (distribute=broadcast()) on the placement of the op"
