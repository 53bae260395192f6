"""Overlap of communication and computation, and of the optimizer update with the backward pass (fused update).

Variables are updated in the midst of the backward pass, as soon as nothing reads them any more: their gradients are
still in the cache, and their memory is free for what comes. A large gradient that is a matrix product is not even made:
its variable is updated some rows at a time.

What other ranks must first send is not waited for in the midst: such updates stay at the end, where the ranks wait for
each other anyway. The slower rank holds up the others wherever they meet, and who is slower changes; so ranks meet once
per step. Sums are begun in the backward pass (``bucket.py``) and waited for at its end, and so are activations that all
ranks gather to make a gradient themselves. Of such a gradient each rank makes some rows, if the ranks hold its variable
once (``collective/one_copy.py``), and all of it otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.capture.cleanup import writes
from oneflow.engine.ir.nodes import add_call, argument
from oneflow.engine.ops.updates import gradients
from oneflow.engine.passes.inplace import may_keep
from oneflow.engine.program import large_products
from oneflow.engine.program.aliases import Memory, memories
from oneflow.engine.program.notes import copy_notes, joint_note, local_note, set_local_note, update_note

BYTES = (
    2**20
)  # of gradients that are updated together: what waits for others of its kind is memory, and leaves the cache


def update_early(graph: fx.Graph, is_common: bool) -> None:
    """Cuts the updates at the end of a finished graph into pieces and moves each to where its gradients are there.
    Updates that may not be cut, or that exchange something with other ranks, stay where they are. Ranks may share the
    work of an update if their programs ``is_common``.

    Relies on a section that ends with its updates. Leaves every variable updated once, after all that reads it.
    """
    calls = [node for node in graph.nodes if (note := update_note(node)) is not None and note.may_be_cut]
    if calls:
        memory = memories(graph)
        touched = _last_touched(graph, memory, calls)
        place = {node: i for i, node in enumerate(graph.nodes)}
        lasting = _lasting(graph, memory)
        own = _written_by_updates_alone(graph, memory, calls) if is_common else set()
        for call in calls:
            _Cut(
                graph,
                call,
                [_ready(call, i, memory, touched, place) for i in range(len(argument(call, 0)))],
                place,
                lasting,
                own,
            ).make()


def _last_touched(graph: fx.Graph, memory: dict[fx.Node, Memory], calls: list[fx.Node]) -> dict[Memory, fx.Node]:
    """The last node that touches each memory, updates aside: the end, if a function that may give a view of it takes
    it."""
    found: dict[Memory, fx.Node] = {}
    until_the_end: list[Memory] = []
    for node in graph.nodes:
        if node in calls:
            continue
        found.update({memory[used]: node for used in (node, *node.all_input_nodes)})
        if may_keep(node):
            until_the_end += [memory[used] for used in node.all_input_nodes]
    return {**found, **dict.fromkeys(until_the_end, next(iter(reversed(graph.nodes))))}


def _ready(
    call: fx.Node, i: int, memory: dict[fx.Node, Memory], touched: dict[Memory, fx.Node], place: dict[fx.Node, int]
) -> fx.Node:
    """The node behind which the i-th variable of an update can be updated."""
    columns: list[Any] = [arg[i] for arg in call.args if isinstance(arg, (list, tuple))]
    others = [arg for arg in (*call.args, *call.kwargs.values()) if isinstance(arg, fx.Node)]
    return max([*columns, *others, *(touched[memory[node]] for node in columns)], key=place.__getitem__)


def _lasting(graph: fx.Graph, memory: dict[fx.Node, Memory]) -> set[fx.Node]:
    """The values that no node changes: those that may be read later than now. A variable is none, nor is what may be a
    view of one."""
    handed = {memory[used] for node in graph.nodes if may_keep(node) or writes(node) for used in node.all_input_nodes}
    return {
        node
        for node, where in memory.items()
        if node.target is collective.gather_parts or not (where in handed or may_keep(where[0]))
    }


def _written_by_updates_alone(graph: fx.Graph, memory: dict[fx.Node, Memory], calls: list[fx.Node]) -> set[fx.Node]:
    """The variables that nothing else in a step writes, or hands to what may."""
    others = [node for node in graph.nodes if node not in calls and (may_keep(node) or writes(node))]
    handed = {memory[used] for node in others for used in node.all_input_nodes}
    return {node for node in graph.nodes if node.op == "placeholder" and memory[node] not in handed}


class _Cut:
    """Puts updates of some variables each in the place of one update of all of them. ``ready`` tells for each where it
    may be, ``lasting`` which values may be read later than now, ``own`` which variables updates alone write."""

    def __init__(
        self,
        graph: fx.Graph,
        call: fx.Node,
        ready: list[fx.Node],
        place: dict[fx.Node, int],
        lasting: set[fx.Node],
        own: set[fx.Node],
    ) -> None:
        self._graph = graph
        self._call = call
        self._ready = ready
        self._place = place
        self._lasting = lasting
        self._own = own
        self._shared: dict[collective.OneCopy, list[fx.Node]] = {}
        self._gradients: list[fx.Node] = argument(call, 1)
        note = update_note(call)
        assert note is not None
        self._note = note

    def make(self) -> None:
        order = sorted(range(len(self._ready)), key=lambda i: self._place[self._ready[i]])
        products = [i for i in order if self._is_large_product(i)]
        for i in products:
            self._insert_rows(i)
        self._wait_for_rows()
        piece: list[int] = []
        size = 0
        for i in [i for i in order if i not in products]:
            piece.append(i)
            size += self._note.sizes[i]
            if size >= BYTES:
                self._insert(piece, self._call.target, self._arguments(piece), self._call.kwargs)
                piece, size = [], 0
        if piece:
            self._insert(piece, self._call.target, self._arguments(piece), self._call.kwargs)
        self._graph.erase_node(self._call)
        for i in products:
            self._graph.erase_node(self._gradients[i])

    def _is_large_product(self, i: int) -> bool:
        """Whether a gradient is a matrix product that only this update reads, of more rows than are made at a time, and
        that can be made when variables have been updated already."""
        gradient = self._gradients[i]
        is_own = gradient.target is torch.ops.aten.mm.default and list(gradient.users) == [self._call]
        is_large = self._note.may_be_by_rows and large_products.is_large_product(
            self._note.sizes[i], self._note.linear is not None
        )
        return is_own and is_large and self._lasting.issuperset(gradient.all_input_nodes)

    def _insert_rows(self, i: int) -> None:
        params, (product,), *others = self._arguments([i])
        numbers = {
            **self._call.kwargs,
            "function": self._call.target,
            "size": large_products.ROWS_BYTES,
            "linear": self._note.linear,
        }
        arguments = (params, *product.args, *others)
        held = [*params, *(node for column in others if isinstance(column, list) for node in column)]
        one_copy = self._one_copy(product, held)
        if one_copy is not None:
            begun = self._insert([i], collective.read_last, (one_copy, held), {})
            set_local_note(begun, replace(local_note(begun), update=None))
            self._shared.setdefault(one_copy, []).append(begun)
        if any(factor.target is collective.gather_parts for factor in product.args):
            self._ready[i] = self._call
        if one_copy is None:
            self._insert([i], gradients.by_rows, arguments, numbers)
        else:
            self._insert([i], collective.update_rows, (one_copy, begun, *arguments), numbers)

    def _one_copy(self, product: fx.Node, held: list[fx.Node]) -> collective.OneCopy | None:
        """The ranks that all make the same product, of factors that they have gathered, for variables that they may
        hold together."""
        if not self._own.issuperset(held) or any(
            factor.target is not collective.gather_parts for factor in product.all_input_nodes
        ):
            return None
        groups = {argument(factor, 3) for factor in product.all_input_nodes}
        return collective.OneCopy(*groups) if len(groups) == 1 else None

    def _wait_for_rows(self) -> None:
        for one_copy, begun in self._shared.items():
            with self._graph.inserting_before(self._call):
                waits = add_call(self._graph, collective.rows_wait, one_copy, begun)
            set_local_note(waits, replace(local_note(self._call), update=None))

    def _arguments(self, piece: list[int]) -> tuple[Any, ...]:
        return tuple([arg[i] for i in piece] if isinstance(arg, (list, tuple)) else arg for arg in self._call.args)

    def _insert(self, piece: list[int], target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        """Adds the update of some variables where the last of them may be, and no later than all of them were."""
        call, behind = self._call, self._ready[piece[-1]]
        is_early = self._place[behind] < self._place[call]
        with self._graph.inserting_after(behind) if is_early else self._graph.inserting_before(call):
            made = self._graph.call_function(target, args, kwargs)
        set_local_note(made, replace(local_note(call), update=self._note.of(piece)))
        return made


def gather_early(graph: fx.Graph, is_common: bool) -> None:
    """What ranks gather to make a gradient themselves is sent when it is there, and waited for when it is read. The
    programs of the ranks may exchange it through memory if they are ``is_common``.

    Relies on gathers that are noted with the node they are for. Leaves those of gradients in two calls, in one order on
    all ranks.
    """
    place = {node: i for i, node in enumerate(graph.nodes)}
    for number, node in enumerate(
        [node for node in graph.nodes if node.target is collective.gather_parts and _is_for_gradient(node)]
    ):
        part, dim, sizes, ranks = (argument(node, place) for place in range(4))
        gather = collective.Gather(number, dim, sizes, ranks, is_common)
        with graph.inserting_before(node):
            begun = add_call(graph, collective.gather_start, gather, part)
        with graph.inserting_before(min(node.users, key=place.__getitem__, default=node)):
            done = add_call(graph, collective.gather_wait, gather, begun)
        for made in (begun, done):
            copy_notes(made, node)
        node.replace_all_uses_with(done)
        graph.erase_node(node)


def _is_for_gradient(node: fx.Node) -> bool:
    """Whether a value is exchanged for a matrix product of the backward pass that nothing else is made of. That is so
    on all ranks or on none, whichever of them sends or watches what."""
    consumer = local_note(node).consumer
    is_product = consumer is not None and consumer.target is torch.ops.aten.mm.default and not consumer.users
    return consumer is not None and is_product and joint_note(consumer).part == "backward"
