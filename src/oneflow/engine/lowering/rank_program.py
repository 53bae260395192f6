"""From an assignment to the program of one rank: its local graph, cut into the sections that a step runs.

Optimizer state that is split (ZeRO stage 1) is updated in parts, and the variables are made whole again by one
all-gather.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.assignment.storage import update_layout
from oneflow.engine.assignment.update_groups import UpdateGroup
from oneflow.engine.capture.cleanup import writes
from oneflow.engine.capture.joint_options import rate_blob
from oneflow.engine.core.region import coordinates, peers
from oneflow.engine.ir.nodes import argument
from oneflow.engine.lowering.append_update import GroupRate, OtherRanks, Update
from oneflow.engine.lowering.bucket import put_in_buckets
from oneflow.engine.lowering.lower import Lowering
from oneflow.engine.ops.updates.gradients import all_finite
from oneflow.engine.program.notes import ArgumentNote, argument_note, copy_notes, layout_of, local_note, val
from oneflow.engine.program.program import Key, Program, Section, key_order
from oneflow.engine.program.schedule import Slot, one_forward_one_backward
from oneflow.engine.sharding.boxing import extents
from oneflow.engine.sharding.mesh import Layout, Mesh, whole_on
from oneflow.optimizer.training import Training

_IN_TURN = ("prologue", "micro_batch", "reduce", "update")
_IN_PIPELINE = ("prologue", "forward", "backward", "reduce", "update")


def lower_job(assigned: Assigned, rank: int) -> Program:
    """The program of ``rank``, as a plan shows it.

    Relies on an assignment in which every node has a mesh and a layout, and leaves it as it was. Leaves local calls and
    collectives, in the same order on all ranks.
    """
    lowering = Lowering(rank, assigned.device, assigned.is_alone)
    builder = _Builder(assigned, lowering)
    builder.build()
    put_in_buckets(
        lowering.graph,
        assigned.decl.buckets,
        early=not builder.in_sections,
        in_turn=assigned.decl.is_mirrored,
        channels_last=[name for name in assigned.outputs.gradients if _is_channels_last(assigned, name)],
    )
    return builder.program()


def _is_channels_last(assigned: Assigned, name: str) -> bool:
    """Whether a variable is stored in channels_last memory, and not in contiguous memory too."""
    variable = val(assigned.arguments["variable", name])
    return (
        variable.dim() == 4
        and variable.is_contiguous(memory_format=torch.channels_last)
        and not variable.is_contiguous()
    )


@dataclass(frozen=True)
class _Shared:
    """A variable that is whole on every rank and updated in parts along dim 0: its rows on each of the ranks that share
    it."""

    whole: fx.Node
    part: fx.Node
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]


class _Builder:
    def __init__(self, assigned: Assigned, lowering: Lowering) -> None:
        self.assigned = assigned
        self.lowering = lowering
        self.training: Training | None = assigned.decl.training
        self.results: list[fx.Node | None] = []
        self.watched: list[fx.Node | None] = []
        self.accumulated: list[fx.Node] = []
        self.finite: fx.Node | None = None

    @property
    def in_sections(self) -> bool:
        return self.training is not None and self.training.in_two_parts

    def build(self) -> None:
        nodes = [node for node in self.assigned.graph.nodes if node.op == "call_function"]
        for key, node in self.assigned.arguments.items():
            self.lowering.placeholder(node, key)
        for node in nodes:
            self.lowering.run(node)
        self.results = [self._sent(node) for node in self.assigned.outputs.results]
        self.watched = [self._sent(node) for node in self.assigned.outputs.watched]
        if self.training is not None and self.lowering.rank in self.assigned.ranks:
            self._reduce_and_update(self.training)

    def _sent(self, node: fx.Node) -> fx.Node | None:
        """A result, on the ranks that keep it or send it: where several hold the same part, the first of them sends
        it."""
        layout = layout_of(node)
        return (
            self.lowering.boxed(node, layout)
            if self.assigned.decl.keeps_parts or layout.is_first(self.lowering.rank)
            else None
        )

    # -------------------------------------------------------------- the end of a train step

    def _reduce_and_update(self, training: Training) -> None:
        with self.lowering.noting(section="reduce"):
            gradients = self._reduced(training)
        if training.loss_scale.is_dynamic:
            with self.lowering.noting(section="reduce"):
                self.finite = self.lowering.call_function(all_finite, (list(gradients.values()),))
                if len(self.assigned.ranks) > 1:
                    args = self.finite, self.assigned.ranks, str(self.assigned.device)
                    self.finite = self.lowering.call_function(collective.finite_over, args)
        with self.lowering.noting(section="update"):
            self._update(training, gradients)

    def _reduced(self, training: Training) -> dict[str, fx.Node]:
        """The gradients this rank updates with, each boxed to the layout of its variable's update, in the order they
        are made."""
        order = {node: i for i, node in enumerate(self.assigned.graph.nodes)}
        found: dict[str, fx.Node] = {}
        if self.in_sections:
            for node in set(self.assigned.outputs.gradients.values()):
                self.lowering.forget_boxed(node)
        for name, node in sorted(self.assigned.outputs.gradients.items(), key=lambda item: order[item[1]]):
            made = self.lowering.boxed(node, layout_of(node))
            if made is not None and made not in self.accumulated:
                self.accumulated.append(made)
            with self.lowering.noting(gradient=name):
                local = self.lowering.boxed(node, self._update_layout(training, name))
            if local is not None:
                found[name] = local
        return found

    def _update_layout(self, training: Training, name: str) -> Layout:
        return update_layout(training, self.assigned.decl.decls[name].spec, self.assigned.layouts[name])

    def _update(self, training: Training, gradients: dict[str, fx.Node]) -> None:
        assigned, lowering = self.assigned, self.lowering
        variables, shared = self._variables(training, list(gradients))
        rates = self._rates()
        unscale: Any = None
        if training.in_two_parts:
            unscale = lowering.argument(ArgumentNote(("unscale",)))
        elif training.loss_scale.initial != 1.0:
            unscale = 1.0 / training.loss_scale.initial
        parts = self._parts(training, list(gradients)) if len(assigned.ranks) > 1 else None
        Update(lowering, assigned.decl, variables, gradients, rates, unscale, training.coupled, parts).append(
            assigned.groups
        )
        self._gather_shared(shared)

    def _parts(self, training: Training, names: list[str]) -> OtherRanks:
        """What the update must know of the other ranks."""
        rank = self.lowering.rank
        layouts = {name: self._update_layout(training, name) for name in names}
        owned = frozenset(name for name, layout in layouts.items() if layout.is_first(rank))
        outputs = self.assigned.outputs
        read = frozenset(
            name for name, gradient in outputs.gradients.items() if gradient in (*outputs.results, *outputs.watched)
        )
        shared_by = {name: _sharers(layout, rank) for name, layout in layouts.items()}
        return OtherRanks(self.assigned.ranks, owned, shared_by, str(self.assigned.device), read)

    def _rates(self) -> list[GroupRate]:
        """The rate of each group, and its count where it asks for one: arguments in the order of ``Assigned.rates``."""
        numbers = iter(range(2 * len(self.assigned.groups)))
        return [
            GroupRate(self._rate(group, numbers), self._number(numbers) if group.takes_count else None)
            for group in self.assigned.groups
        ]

    def _rate(self, group: UpdateGroup, numbers: Iterator[int]) -> fx.Node:
        """An argument, or the value of a blob, which every rank then needs."""
        name = rate_blob(group.optimizer)
        if name is None:
            return self._number(numbers)
        blob = self.assigned.custom_rates[name]
        everyone = whole_on(Mesh(self.assigned.ranks, (len(self.assigned.ranks),)))
        return self.lowering.call_function(float, (self.lowering.boxed(blob, everyone),))

    def _number(self, numbers: Iterator[int]) -> fx.Node:
        return self.lowering.argument(ArgumentNote(("rate", next(numbers))))

    def _variables(self, training: Training, names: list[str]) -> tuple[dict[str, fx.Node], list[_Shared]]:
        """What the update changes: variables and their state; of variables whose state is shared out, this rank's
        part."""
        found, shared = {}, []
        for name in names:
            found[name] = self._stored(name)
            if self._update_layout(training, name) != self.assigned.layouts[name]:
                shared.append(self._shared(training, name, found[name]))
                found[name] = shared[-1].part
        found.update(
            {
                state: self.lowering.argument(ArgumentNote(("variable", state)))
                for name in names
                for state in self._states(name)
            }
        )
        return found, shared

    def _shared(self, training: Training, name: str, whole: fx.Node) -> _Shared:
        layout = self._update_layout(training, name)
        position = layout.mesh.position(self.lowering.rank)
        assert position is not None
        (axis,) = [a for a, sbp in enumerate(layout.sbp) if sbp is not self.assigned.layouts[name].sbp[a]]
        sizes = extents(self.assigned.decl.decls[name].spec.shape, layout.sbp, layout.mesh, position, axis, 0)
        place = coordinates(position, layout.mesh.axes)[axis]
        part = self.lowering.call_function(collective.part_of, (whole, 0, sizes, place))
        return _Shared(
            whole, part, sizes, tuple(layout.mesh.ranks[p] for p in peers(position, layout.mesh.axes, (axis,)))
        )

    def _states(self, name: str) -> list[str]:
        group = next(group for group in self.assigned.groups if name in group.names)
        return [f"{name}-{suffix}" for suffix in group.optimizer.states]

    def _stored(self, name: str) -> fx.Node:
        local = self.lowering.boxed(self.assigned.arguments["variable", name], self.assigned.layouts[name])
        assert local is not None
        return local

    def _gather_shared(self, shared: list[_Shared]) -> None:
        """Makes variables whole again whose parts the ranks have updated; together for all that the same ranks
        share."""
        together: dict[tuple[int, ...], list[_Shared]] = {}
        for one in shared:
            together.setdefault(one.ranks, []).append(one)
        for ranks, ones in together.items():
            args = [one.whole for one in ones], [one.part for one in ones], [one.sizes for one in ones], ranks
            self.lowering.call_function(collective.gather_into, args)

    # -------------------------------------------------------------- sections

    def program(self) -> Program:
        keys = _Keys(self.lowering.graph)
        returned = [node for node in (*self.results, *self.watched) if node is not None]
        if self.in_sections:
            wanted = [*returned, *self.accumulated, *([self.finite] if self.finite is not None else [])]
            sections = {
                name: _cut(self.lowering.graph, keys, _PARTS.get(name, (name,)), wanted)
                for name in self._section_names()
            }
        else:
            sections = {"step": _cut(self.lowering.graph, keys, None, returned, in_order=True)}
        return Program(
            job=self.assigned.decl.job,
            rank=self.lowering.rank,
            sections=sections,
            schedule=self._schedule(),
            feeds=tuple(
                sorted({key[1] for section in sections.values() for key in section.inputs if key[0] == "feed"})
            ),
            results=tuple(None if n is None else keys.of(n) for n in self.results),
            watched=tuple(None if n is None else keys.of(n) for n in self.watched),
            gradients=tuple(keys.of(n) for n in self.accumulated) if self.in_sections else (),
            finite=None if self.finite is None else keys.of(self.finite),
            is_common=not self.assigned.decl.is_mirrored,
            writes=self.training is not None or any(map(_writes_variable, self.assigned.graph.nodes)),
        )

    def _section_names(self) -> tuple[str, ...]:
        return _IN_TURN if self.assigned.stages is None else _IN_PIPELINE

    def _schedule(self) -> tuple[Slot, ...]:
        micro_batches = self.training.micro_batches if self.training is not None else 1
        stages = self.assigned.stages
        if stages is None:
            return tuple(("micro_batch", number) for number in range(micro_batches))
        mine = next((i for i, mesh in enumerate(stages) if self.lowering.rank in mesh.ranks), 0)
        return one_forward_one_backward(mine, len(stages), micro_batches)


def _sharers(layout: Layout, rank: int) -> tuple[int, ...]:
    """The ranks that hold the parts of a tensor among them; () where each has it whole."""
    position = layout.mesh.position(rank)
    assert position is not None
    along = [axis for axis, sbp in enumerate(layout.sbp) if sbp.kind == "S"]
    return tuple(layout.mesh.ranks[p] for p in peers(position, layout.mesh.axes, along)) if along else ()


class _Keys:
    """Keys of the nodes of a graph: those of its arguments, and a number for any other."""

    def __init__(self, graph: fx.Graph) -> None:
        self._of: dict[fx.Node, Key] = {node: _own_key(node) or ("value", i) for i, node in enumerate(graph.nodes)}

    def of(self, node: fx.Node) -> Key:
        return self._of[node]


def _writes_variable(node: fx.Node) -> bool:
    return node.op == "call_function" and writes(node) and argument(node, 0).op == "placeholder"


def _own_key(node: fx.Node) -> Key | None:
    note = argument_note(node)
    return None if note is None else note.key


_PARTS = {"micro_batch": ("forward", "backward")}
"""Of which parts of a step a section is made, where it is not the one of its own name."""


def _cut(
    graph: fx.Graph, keys: _Keys, parts: tuple[str, ...] | None, wanted: Sequence[fx.Node], in_order: bool = False
) -> Section:
    """The nodes of some parts of a step (None: of all) as a section. What other sections read of it, and what is
    wanted, are its outputs; ``in_order`` just that, as often as it is wanted."""
    mine = [
        node
        for node in graph.nodes
        if node.op == "call_function" and (parts is None or local_note(node).section in parts)
    ]
    members, asked = set(mine), set(wanted)
    read = dict.fromkeys(n for user in mine for n in user.all_input_nodes if n not in members)
    if parts is None or "forward" in parts:  # an argument that is a result too
        read.update(dict.fromkeys(node for node in wanted if node.op == "placeholder"))
    inputs = sorted(read, key=lambda node: key_order(keys.of(node)))
    body: fx.Graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        new[node] = body.placeholder("argument")
        copy_notes(new[node], node)
    for node in mine:
        new[node] = body.node_copy(node, lambda n: new[n])
    outputs = (
        list(wanted)
        if in_order
        else [
            n
            for n in (*mine, *inputs)
            if n in asked or (n in members and any(u not in members and u.op == "call_function" for u in n.users))
        ]
    )
    body.output(tuple(new[node] for node in outputs))
    return Section(body, tuple(keys.of(n) for n in inputs), tuple(keys.of(n) for n in outputs))
