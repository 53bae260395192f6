"""The program of one rank: its local graph, cut into the sections that a step runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx

from oneflow.compiler.boxing import extents
from oneflow.compiler.bucket import multiply_in_place, put_in_buckets
from oneflow.compiler.distribute import Assigned, Key
from oneflow.compiler.early import gather_early, update_early
from oneflow.compiler.infer import layout_of
from oneflow.compiler.lower import Lowering
from oneflow.compiler.inplace import write_over
from oneflow.compiler.mesh import Layout, Mesh, whole_on
from oneflow.compiler.schedule import Slot, one_forward_one_backward
from oneflow.compiler.storage import update_layout
from oneflow.optimizer.training import Training
from oneflow.compiler.update import Parts, Update
from oneflow.core.layout import coordinates, peers
from oneflow.ops import collective, update

SECTIONS = ("prologue", "forward", "backward", "reduce", "update")


@dataclass(frozen=True)
class Section:
    """A part of a step: a graph whose arguments and outputs are known by their keys."""

    graph: fx.Graph
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]


@dataclass(frozen=True)
class RankProgram:
    """One step of one job on one rank.

    Without gradient accumulation and with a fixed loss scale there is one section, "step". Otherwise "prologue" runs once,
    "forward" and "backward" for each micro-batch in the order of ``schedule``, "reduce" once with the gradients' sums over micro-batches, "update"
    once if they are finite. ``results`` and ``watched`` are the keys of what this rank sends back, None where another does. ``sends`` holds
    what goes to other placements. The program ``is_common`` if all ranks of its placement run the same calls in the same order.
    """

    job: str
    rank: int
    sections: dict[str, Section]
    schedule: tuple[Slot, ...]
    results: tuple[Key | None, ...]
    watched: tuple[Key | None, ...]
    gradients: tuple[Key, ...]
    finite: Key | None
    sends: collective.Sends
    is_common: bool

    def groups(self) -> list[tuple[int, ...]]:
        """The groups of ranks that its collectives are among, in the order of their first use."""
        calls = [node for section in self.sections.values() for node in section.graph.nodes if node.op == "call_function"]
        return list(dict.fromkeys(ranks for node in calls for ranks in collective.groups_in(node.target, node.args, node.kwargs)))


def lower_job(assigned: Assigned, rank: int) -> RankProgram:
    """The program of ``rank``."""
    lowering = Lowering(rank, assigned.device)
    builder = _Builder(assigned, lowering)
    builder.build()
    put_in_buckets(lowering.graph, early=not builder.in_sections, in_turn=assigned.logical.is_mirrored)
    return builder.program()


def tuned(program: RankProgram) -> RankProgram:
    """A program as it runs. Its values, and what it sends, are those of the program that a plan shows."""
    for name, section in program.sections.items():
        if name == "step":
            update_early(section.graph)
            gather_early(section.graph, program.is_common)
        multiply_in_place(section.graph)
        write_over(section.graph)
    return program


@dataclass(frozen=True)
class _Shared:
    """A variable that is whole on every rank and updated in parts along dim 0: its rows on each of the ranks that share it."""

    whole: fx.Node
    part: fx.Node
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]


class _Builder:
    def __init__(self, assigned: Assigned, lowering: Lowering) -> None:
        self.assigned = assigned
        self.lowering = lowering
        self.training: Training | None = assigned.logical.training
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
        """A result, on the ranks that send it: where several hold the same part, the first of them."""
        layout = layout_of(node)
        return self.lowering.boxed(node, layout) if layout.is_first(self.lowering.rank) else None

    # -------------------------------------------------------------- the end of a train step

    def _reduce_and_update(self, training: Training) -> None:
        gradients = self._reduced(training)
        if training.loss_scale.is_dynamic:
            with self.lowering.within("reduce"):
                local = self.lowering.call_function(update.all_finite, (list(gradients.values()),))
                self.finite = self.lowering.call_function(collective.finite_over, (local, self.assigned.ranks, str(self.assigned.device)))
        with self.lowering.within("update"):
            self._update(training, gradients)

    def _reduced(self, training: Training) -> dict[str, fx.Node]:
        """The gradients this rank updates with, each boxed to the layout of its variable's update, in the order they are made."""
        order = {node: i for i, node in enumerate(self.assigned.graph.nodes)}
        found: dict[str, fx.Node] = {}
        self.lowering.section = "reduce"
        if self.in_sections:
            for node in set(self.assigned.outputs.gradients.values()):
                self.lowering.unbox(node)
        for name, node in sorted(self.assigned.outputs.gradients.items(), key=lambda item: order[item[1]]):
            made = self.lowering.boxed(node, layout_of(node))
            if made is not None and made not in self.accumulated:
                self.accumulated.append(made)
            with self.lowering.because(gradient=name):
                local = self.lowering.boxed(node, self._update_layout(training, name))
            if local is not None:
                found[name] = local
        return found

    def _update_layout(self, training: Training, name: str) -> Layout:
        return update_layout(training, self.assigned.logical.decls[name].spec, self.assigned.layouts[name])

    def _update(self, training: Training, gradients: dict[str, fx.Node]) -> None:
        assigned, lowering = self.assigned, self.lowering
        variables, shared = self._variables(training, list(gradients))
        rates = self._rates()
        unscale: Any = None
        if training.in_two_parts:
            unscale = lowering.argument(("unscale",))
        elif training.loss_scale.initial != 1.0:
            unscale = 1.0 / training.loss_scale.initial
        layouts = {name: self._update_layout(training, name) for name in gradients}
        parts = Parts(
            assigned.ranks,
            frozenset(name for name, layout in layouts.items() if layout.is_first(lowering.rank)),
            {name: _sharers(layout, lowering.rank) for name, layout in layouts.items()},
            str(assigned.device),
        )
        Update(lowering, assigned.logical, variables, gradients, rates, unscale, training.coupled, parts).append(assigned.groups)
        self._gather_shared(shared)

    def _rates(self) -> list[fx.Node]:
        """The rate of each group: an argument, or the value of a blob, which every rank then needs."""
        found, number = [], 0
        everyone = whole_on(Mesh(self.assigned.ranks, (len(self.assigned.ranks),)))
        for group in self.assigned.groups:
            blob = self.assigned.custom_rates.get(id(group.optimizer))
            if blob is None:
                found.append(self.lowering.argument(("rate", number)))
                number += 1
            else:
                found.append(self.lowering.call_function(float, (self.lowering.boxed(blob, everyone),)))
        return found

    def _variables(self, training: Training, names: list[str]) -> tuple[dict[str, fx.Node], list[_Shared]]:
        """What the update changes: variables and their state; of variables whose state is shared out, this rank's part."""
        found, shared = {}, []
        for name in names:
            found[name] = self._stored(name)
            if self._update_layout(training, name) != self.assigned.layouts[name]:
                shared.append(self._shared(training, name, found[name]))
                found[name] = shared[-1].part
        found.update({state: self.lowering.argument(("variable", state)) for name in names for state in self._states(name)})
        return found, shared

    def _shared(self, training: Training, name: str, whole: fx.Node) -> _Shared:
        layout = self._update_layout(training, name)
        position = layout.mesh.position(self.lowering.rank)
        assert position is not None
        (axis,) = [a for a, sbp in enumerate(layout.sbp) if sbp is not self.assigned.layouts[name].sbp[a]]
        sizes = extents(self.assigned.logical.decls[name].spec.shape, layout.sbp, layout.mesh, position, axis, 0)
        place = coordinates(position, layout.mesh.axes)[axis]
        part = self.lowering.call_function(collective.part_of, (whole, 0, sizes, place))
        return _Shared(whole, part, sizes, tuple(layout.mesh.ranks[p] for p in peers(position, layout.mesh.axes, (axis,))))

    def _states(self, name: str) -> list[str]:
        group = next(group for group in self.assigned.groups if name in group.names)
        return [f"{name}-{suffix}" for suffix in group.optimizer.states]

    def _stored(self, name: str) -> fx.Node:
        local = self.lowering.boxed(self.assigned.arguments["variable", name], self.assigned.layouts[name])
        assert local is not None
        return local

    def _gather_shared(self, shared: list[_Shared]) -> None:
        """Makes variables whole again whose parts the ranks have updated; together for all that the same ranks share."""
        together: dict[tuple[int, ...], list[_Shared]] = {}
        for one in shared:
            together.setdefault(one.ranks, []).append(one)
        for ranks, ones in together.items():
            args = [one.whole for one in ones], [one.part for one in ones], [one.sizes for one in ones], ranks
            self.lowering.call_function(collective.gather_into, args)

    # -------------------------------------------------------------- sections

    def program(self) -> RankProgram:
        keys = _Keys(self.lowering.graph)
        wanted = [node for node in (*self.results, *self.watched, *self.accumulated, self.finite) if node is not None]
        if self.in_sections:
            sections = {name: _cut(self.lowering.graph, keys, lambda s, name=name: s == name, wanted) for name in SECTIONS}  # type: ignore[misc]
        else:
            wanted = [node for node in (*self.results, *self.watched) if node is not None]
            sections = {"step": _cut(self.lowering.graph, keys, lambda s: True, wanted)}
        return RankProgram(
            job=self.assigned.logical.job,
            rank=self.lowering.rank,
            sections=sections,
            schedule=self._schedule(),
            results=tuple(None if n is None else keys.of(n) for n in self.results),
            watched=tuple(None if n is None else keys.of(n) for n in self.watched),
            gradients=tuple(keys.of(n) for n in self.accumulated) if self.in_sections else (),
            finite=None if self.finite is None else keys.of(self.finite),
            sends=self.lowering.sends,
            is_common=not self.assigned.logical.is_mirrored,
        )

    def _schedule(self) -> tuple[Slot, ...]:
        micro_batches = self.training.micro_batches if self.training is not None else 1
        stages = self.assigned.stages
        if stages is None:
            return one_forward_one_backward(0, 1, micro_batches)
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
        self._of: dict[fx.Node, Key] = {node: node.meta.get("key", ("value", i)) for i, node in enumerate(graph.nodes)}

    def of(self, node: fx.Node) -> Key:
        return self._of[node]


def _cut(graph: fx.Graph, keys: _Keys, belongs: Callable[[str], bool], wanted: Iterable[fx.Node]) -> Section:
    """The nodes of one section as a graph of its own. What other sections read of it, and what is wanted, are its outputs."""
    mine = [node for node in graph.nodes if node.op == "call_function" and belongs(node.meta["section"])]
    members, asked = set(mine), set(wanted)
    body: fx.Graph = fx.Graph()
    new: dict[fx.Node, fx.Node] = {}
    inputs = [node for node in dict.fromkeys(n for user in mine for n in user.all_input_nodes) if node not in members]
    inputs += [node for node in asked if node.op == "placeholder" and node not in inputs and belongs("forward")]
    for node in inputs:
        new[node] = body.placeholder("argument")
    for node in mine:
        new[node] = body.node_copy(node, lambda n: new[n])
        new[node].meta = dict(node.meta)
    outputs = [
        n for n in (*mine, *inputs) if n in asked or (n in members and any(u not in members and u.op == "call_function" for u in n.users))
    ]
    body.output(tuple(new[node] for node in outputs))
    return Section(body, tuple(keys.of(n) for n in inputs), tuple(keys.of(n) for n in outputs))
