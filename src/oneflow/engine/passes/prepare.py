"""Constant folding of a predict program: what depends on variables alone is computed when they change, not at every
step.

Variables are constant between two changes of them, so this is what other compilers call constant folding, or moving
invariant code out of a loop.
"""

from __future__ import annotations

from torch import fx

from oneflow.engine.capture.cleanup import drop_unused
from oneflow.engine.passes.folding import fold_batch_norms
from oneflow.engine.passes.fused_conv import fuse_convolutions
from oneflow.engine.passes.invariant import Invariants
from oneflow.engine.passes.packing import pack_convolutions
from oneflow.engine.program.notes import set_val, tensor
from oneflow.engine.program.program import Key, Section, key_order


def prepare(sections: dict[str, Section], fuses: bool = True) -> dict[str, Section]:
    """Takes from the section "step" of a lowered predict program what can be computed once, into a section "prepare"
    before it.

    Relies on graphs whose arguments have the values they stand for noted. Leaves a step that reads what is prepared as
    arguments; where nothing can be taken, the sections are as they were. It ``fuses`` by the kernels of the C extension
    where that is built.
    """
    step = sections["step"]
    keys = dict(zip((node for node in step.graph.nodes if node.op == "placeholder"), step.inputs))
    variables = [node for node, key in keys.items() if key[0] == "variable"]
    invariants = Invariants(step.graph, variables)
    fold_batch_norms(step.graph, invariants)
    if fuses:
        fuse_convolutions(step.graph, invariants)
    pack_convolutions(step.graph, invariants)
    drop_unused(step.graph)
    kept = [
        n
        for n in step.graph.nodes
        if n.op == "call_function" and n in invariants and any(user not in invariants for user in n.users)
    ]
    if not kept:
        return sections
    made: tuple[Key, ...] = tuple(("prepared", number) for number in range(len(kept)))
    first = Section(_copied(step.graph, variables, invariants, kept), tuple(keys[node] for node in variables), made)
    for key, node in zip(made, kept):
        keys[_placeholder_for(step.graph, node, invariants)] = key
    return {**sections, "prepare": first, "step": _without(step, keys, invariants)}


def _copied(graph: fx.Graph, variables: list[fx.Node], invariants: Invariants, kept: list[fx.Node]) -> fx.Graph:
    """A graph of its own that makes the kept values of the variables."""
    first: fx.Graph = fx.Graph()
    copies = {node: first.node_copy(node) for node in variables}
    for node in graph.nodes:
        if node.op == "call_function" and node in invariants:
            copies[node] = first.node_copy(node, copies.__getitem__)
    first.output(tuple(copies[node] for node in kept))
    return first


def _placeholder_for(graph: fx.Graph, node: fx.Node, invariants: Invariants) -> fx.Node:
    """A new argument in the place of a kept value, for the nodes that stay."""
    with graph.inserting_before(next(iter(graph.nodes))):
        argument: fx.Node = graph.placeholder("prepared")
    made = tensor(node)
    if made is not None:
        set_val(argument, made)
    node.replace_all_uses_with(argument, delete_user_cb=lambda user: user not in invariants)
    return argument


def _without(step: Section, keys: dict[fx.Node, Key], invariants: Invariants) -> Section:
    """The step without what is prepared, and without the variables that only that reads; its arguments in order."""
    graph = step.graph
    for node in reversed(list(graph.nodes)):
        if node in invariants and not node.users:
            graph.erase_node(node)
    left = sorted((node for node in graph.nodes if node.op == "placeholder"), key=lambda node: key_order(keys[node]))
    for node in reversed(left):
        next(iter(graph.nodes)).prepend(node)
    return Section(graph, tuple(keys[node] for node in left), step.outputs)
