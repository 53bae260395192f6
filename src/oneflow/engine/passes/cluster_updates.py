"""Pieces of the update as clusters: the division by a loss scale, regularizers, clipping and the update itself become
one call on lists of variables, and so do the norms by which gradients are clipped. What is done to a gradient is never
written to memory.

Updates that are one kernel of torch's already stay what they are where nothing is done to their gradients before. Those
of some rows of a variable stay too.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

import oneflow.engine.collective as collective
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops.updates import update
from oneflow.engine.passes.update_cluster import NormCluster, UpdateCluster, call_norms, call_update
from oneflow.engine.program.notes import UpdateNote, copy_notes, local_note, set_local_note, update_note

_FACTORS: dict[Any, Any] = {update.clipped: update.clip_factor, update.clipped_by_norm: update.norm_factor}
_STEPS = (*_FACTORS, update.regularized, update.scaled)


def cluster_updates(graph: fx.Graph) -> None:
    """Puts calls of clusters in the place of updates and of what is done to their gradients.

    Relies on a section as it was lowered. Leaves the same values but for rounding, every variable updated once, and the
    same collectives in the same order.
    """
    chains: dict[fx.Node, _Chain] = {}
    for node in list(graph.nodes):
        note = update_note(node)
        if note is None or note.recipe is None:
            continue
        last = _last_step(argument(node, 1))
        if last is not None and last not in chains:
            chains[last] = _Chain.of(graph, last)
        if last is not None or not note.is_fused:
            _replace(graph, node, note, None if last is None else chains[last])
    for last in chains:
        _drop_unread(graph, last)


# ------------------------------------------------------------------ what is done to gradients


def _last_step(gradients: list[fx.Node]) -> fx.Node | None:
    """The call that has made the gradients of an update of what they were; None if they are what they were."""
    first = gradients[0]
    return argument(first, 0) if first.target is operator.getitem and argument(first, 0).target in _STEPS else None


@dataclass(frozen=True)
class _Chain:
    """What is done to the gradients of an optimizer: what each was before, and the numbers that ``call_update``
    takes."""

    grads: list[fx.Node]
    unscale: Any
    l1: list[float]
    l2: list[float]
    factor: fx.Node | None

    @staticmethod
    def of(graph: fx.Graph, last: fx.Node) -> _Chain:
        clip = last if last.target in _FACTORS else None
        before: Any = last if clip is None else argument(last, 0)
        coupled: Any = None
        if isinstance(before, fx.Node) and before.target is update.regularized:
            coupled, before = before.args, before.args[1]
        unscale = None
        if isinstance(before, fx.Node):
            before, unscale = before.args
        grads = list(before)
        params, _, l1, l2 = (grads, None, [0.0] * len(grads), [0.0] * len(grads)) if coupled is None else coupled
        factor = None
        if clip is not None:
            norm_type = float(clip.kwargs.get("norm_type", 2.0))  # type: ignore[arg-type]
            norms = NormCluster(norm_type)
            factor = _factor(
                graph, clip, len(grads), lambda places: _norms(graph, norms, places, params, grads, unscale, l1, l2)
            )
        return _Chain(grads, unscale, list(l1), list(l2), factor)


def _norms(
    graph: fx.Graph, cluster: Any, places: Sequence[int], params: Any, grads: Any, unscale: Any, l1: Any, l2: Any
) -> fx.Node:
    numbers = {"cluster": cluster, "unscale": unscale, "l1": [l1[i] for i in places], "l2": [l2[i] for i in places]}
    return graph.call_function(call_norms, ([params[i] for i in places], [grads[i] for i in places]), numbers)


def _factor(graph: fx.Graph, clip: fx.Node, count: int, norms: Any) -> fx.Node:
    """The factor of clipping as a node. The norm that it goes by is made of norms of gradients: on ranks by the call
    that was there, of those that this rank answers for."""
    norm: Any = clip.kwargs.get("norm")
    if norm is None:
        with graph.inserting_before(clip):
            made = norms(range(count))
            norm = graph.call_function(update.norm_of, (made, clip.kwargs.get("norm_type", 2.0)))
    else:
        with graph.inserting_before(norm):
            owned = [i for i, mine in enumerate(norm.args[1]) if mine]
            made = norms(owned)
        norm.args = (made, [True] * len(owned), *norm.args[2:])
    numbers = {name: value for name, value in clip.kwargs.items() if name not in ("norm", "norm_type")}
    with graph.inserting_before(clip):
        factor = graph.call_function(_FACTORS[clip.target], (norm,), numbers)
    clip.kwargs = {**clip.kwargs, "norm": norm}
    for node in (made, norm, factor):
        copy_notes(node, clip)
    return factor


def _drop_unread(graph: fx.Graph, last: fx.Node) -> None:
    """Takes away what was done to gradients, from the end on, as far as nobody reads it."""
    for item in list(last.users):
        if item.target is operator.getitem and not item.users:
            graph.erase_node(item)
    if not last.users and last.target in _STEPS:
        before = [used for used in last.all_input_nodes if used.target in _STEPS]
        graph.erase_node(last)
        for node in before:
            _drop_unread(graph, node)


# ------------------------------------------------------------------ updates


def _replace(graph: fx.Graph, node: fx.Node, note: UpdateNote, chain: _Chain | None) -> None:
    """Puts a call of a cluster in the place of an update, or several where its variables are regularized otherwise."""
    assert note.recipe is not None
    cluster = UpdateCluster(node.target, note.recipe)  # type: ignore[arg-type]
    together = _alike(argument(node, 1), chain)
    if len(together) > 1 and isinstance(node.kwargs.get("norms"), collective.NormOverParts):
        return  # norms are exchanged in the order of the variables
    for (l1, l2), places in together.items():
        numbers: dict[str, Any] = {**node.kwargs, "cluster": cluster}
        columns: list[Any] = [[arg[i] for i in places] if isinstance(arg, (list, tuple)) else arg for arg in node.args]
        if chain is not None:
            columns[1] = [chain.grads[argument(grad, 1)] for grad in columns[1]]
            numbers |= {"unscale": chain.unscale, "factor": chain.factor, "coupled_l1": l1, "coupled_l2": l2}
        with graph.inserting_before(node):
            made = graph.call_function(call_update, tuple(columns), numbers)
        set_local_note(made, replace(local_note(node), update=replace(note.of(places), linear=None)))
    graph.erase_node(node)


def _alike(grads: list[fx.Node], chain: _Chain | None) -> dict[tuple[float, float], list[int]]:
    """The places of the variables of an update by their L1 and L2."""
    found: dict[tuple[float, float], list[int]] = defaultdict(list)
    for place, grad in enumerate(grads):
        found[(0.0, 0.0) if chain is None else (chain.l1[argument(grad, 1)], chain.l2[argument(grad, 1)])].append(place)
    return found
