"""Fuses updates with what is done to their gradients before: unscaling, regularizers, clipping and the update of a list
of variables become one call, and so do the norms by which gradients are clipped. No changed gradient is written to
memory.

The calls run by sweeps of the C extension where those take the tensors, otherwise by torch's ops. Updates that are one
fused kernel of torch's stay as they are unless something is done to their gradients before. Updates of some rows, and
those without a recipe in ``sweeps.py``, stay too.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

import oneflow.engine.collective as collective
from oneflow.engine.ir.nodes import argument
from oneflow.engine.ops.updates import gradients, sweeps
from oneflow.engine.ops.updates.gradients import laid_out_as
from oneflow.engine.ops.updates.rows import Tensors, qualified_name
from oneflow.engine.ops.updates.sweeps import Direction
from oneflow.engine.program.notes import UpdateNote, copy_notes, local_note, set_local_note, update_note

_FACTORS: dict[Any, Any] = {
    gradients.clipped: gradients.clip_factor,
    gradients.clipped_by_norm: gradients.norm_factor,
}
_STEPS = (*_FACTORS, gradients.regularized, gradients.scaled)


def fuse_updates(graph: fx.Graph) -> None:
    """Replaces updates and the calls that change their gradients by calls of ``fused_update``.

    Relies on a section as it was lowered. Leaves the same values but for rounding, every variable updated once, and the
    same collectives in the same order.
    """
    chains: dict[fx.Node, _Chain] = {}
    for node in list(graph.nodes):
        note = update_note(node)
        if note is None or qualified_name(node.target) not in sweeps.RECIPES:
            continue
        last = _last_step(argument(node, 1))
        if last is not None and last not in chains:
            chains[last] = _Chain.of(graph, last)
        if last is not None or not note.is_fused:
            _replace(graph, node, note, None if last is None else chains[last])
    for last in chains:
        _drop_unread(graph, last)


# ------------------------------------------------------------------ the calls of a program


def fused_update(
    params: Tensors,
    grads: Tensors,
    *states_and_lr: Any,
    formula: Callable[..., None],
    unscale: float | None = None,
    factor: Tensor | None = None,
    coupled_l1: float = 0.0,
    coupled_l2: float = 0.0,
    **numbers: Any,
) -> None:
    """Updates variables by a ``formula`` with its ``numbers``, from gradients that are multiplied by ``unscale``,
    regularized by L1 and L2, and multiplied by the clip ``factor``."""
    *states, lr = states_and_lr
    direction = _direction(unscale, coupled_l1, coupled_l2, 1.0 if factor is None else float(factor))
    grads = laid_out_as(params, grads)
    if not sweeps.run_update(qualified_name(formula), [params, grads, *states], direction, lr, numbers):
        formula(params, _directed(params, grads, [direction] * len(grads)), *states, lr, **numbers)


def gradient_norms(
    params: Tensors, grads: Tensors, *, norm_type: float, unscale: float | None, l1: list[float], l2: list[float]
) -> Tensors:
    """Returns the norm of each gradient after unscaling and regularizing, each with its own L1 and L2."""
    grads = laid_out_as(params, grads)
    directions = [_direction(unscale, a, b, 1.0) for a, b in zip(l1, l2)]
    norms = sweeps.run_norms([params, grads], directions) if norm_type == 2.0 else None
    if norms is not None:
        return norms
    directed = [grad.float() if grad.itemsize < 4 else grad for grad in _directed(params, grads, directions)]
    return [norm.double() for norm in torch._foreach_norm(directed, norm_type)] if directed else []


def _direction(unscale: float | None, l1: float, l2: float, factor: float) -> Direction:
    return Direction((1.0 if unscale is None else unscale) * factor, l2 * factor, l1 * factor)


def _directed(params: Tensors, grads: Tensors, directions: Sequence[Direction]) -> Tensors:
    """Computes the directions by torch's ops."""
    factors = {one.gradient for one in directions}
    if factors - {1.0}:
        (factor,) = factors  # the same for all gradients of an optimizer
        grads = gradients.scaled(grads, factor)
    return gradients.regularized(params, grads, [one.sign for one in directions], [one.weight for one in directions])


# ------------------------------------------------------------------ changes of gradients


def _last_step(grads: list[fx.Node]) -> fx.Node | None:
    """Returns the last call that changed the gradients of an update; None if nothing did."""
    first = grads[0]
    return argument(first, 0) if first.target is operator.getitem and argument(first, 0).target in _STEPS else None


@dataclass(frozen=True)
class _Chain:
    """The calls that change the gradients of an optimizer: the gradients before, and the numbers of
    ``fused_update``."""

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
        if isinstance(before, fx.Node) and before.target is gradients.regularized:
            coupled, before = before.args, before.args[1]
        unscale = None
        if isinstance(before, fx.Node):
            before, unscale = before.args
        grads = list(before)
        params, _, l1, l2 = (grads, None, [0.0] * len(grads), [0.0] * len(grads)) if coupled is None else coupled
        factor = None
        if clip is not None:
            norm_type = float(clip.kwargs.get("norm_type", 2.0))  # type: ignore[arg-type]
            factor = _factor(
                graph, clip, len(grads), lambda places: _norms(graph, norm_type, places, params, grads, unscale, l1, l2)
            )
        return _Chain(grads, unscale, list(l1), list(l2), factor)


def _norms(
    graph: fx.Graph, norm_type: float, places: Sequence[int], params: Any, grads: Any, unscale: Any, l1: Any, l2: Any
) -> fx.Node:
    numbers = {"norm_type": norm_type, "unscale": unscale, "l1": [l1[i] for i in places], "l2": [l2[i] for i in places]}
    return graph.call_function(gradient_norms, ([params[i] for i in places], [grads[i] for i in places]), numbers)


def _factor(graph: fx.Graph, clip: fx.Node, count: int, norms: Any) -> fx.Node:
    """Inserts the clip factor. Its norm is computed from the norms of gradients: on several ranks by the collective
    that was there, from those that this rank owns."""
    norm: Any = clip.kwargs.get("norm")
    if norm is None:
        with graph.inserting_before(clip):
            each = norms(range(count))
            norm = graph.call_function(gradients.norm_of, (each, clip.kwargs.get("norm_type", 2.0)))
    else:
        with graph.inserting_before(norm):
            owned = [i for i, mine in enumerate(norm.args[1]) if mine]
            each = norms(owned)
        norm.args = (each, [True] * len(owned), *norm.args[2:])
    numbers = {name: value for name, value in clip.kwargs.items() if name not in ("norm", "norm_type")}
    with graph.inserting_before(clip):
        factor = graph.call_function(_FACTORS[clip.target], (norm,), numbers)
    clip.kwargs = {**clip.kwargs, "norm": norm}
    for node in (each, norm, factor):
        copy_notes(node, clip)
    return factor


def _drop_unread(graph: fx.Graph, last: fx.Node) -> None:
    """Erases the calls that changed gradients, from the last one on, while nothing reads them."""
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
    """Replaces an update by a fused one, or by several where its variables have different regularizers."""
    together = _alike(argument(node, 1), chain)
    if len(together) > 1 and isinstance(node.kwargs.get("norms"), collective.NormOverParts):
        return  # norms are exchanged in the order of the variables
    for (l1, l2), places in together.items():
        numbers: dict[str, Any] = {**node.kwargs, "formula": node.target}
        columns: list[Any] = [[arg[i] for i in places] if isinstance(arg, (list, tuple)) else arg for arg in node.args]
        if chain is not None:
            columns[1] = [chain.grads[argument(grad, 1)] for grad in columns[1]]
            numbers |= {"unscale": chain.unscale, "factor": chain.factor, "coupled_l1": l1, "coupled_l2": l2}
        with graph.inserting_before(node):
            fused = graph.call_function(fused_update, tuple(columns), numbers)
        set_local_note(fused, replace(local_note(node), update=replace(note.of(places), linear=None)))
    graph.erase_node(node)


def _alike(grads: list[fx.Node], chain: _Chain | None) -> dict[tuple[float, float], list[int]]:
    """Groups the variables of an update by their L1 and L2."""
    found: dict[tuple[float, float], list[int]] = defaultdict(list)
    for place, grad in enumerate(grads):
        found[(0.0, 0.0) if chain is None else (chain.l1[argument(grad, 1)], chain.l2[argument(grad, 1)])].append(place)
    return found
