"""What a plan says in words: where a job does not use its devices as one might expect, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torch import fx

from oneflow.compiler.distribute import Assigned
from oneflow.core.placement import Placement
from oneflow.ir.graph import Graph
from oneflow.plan.listing import devices_text


def notes_of(graph: Graph, placement: Placement, assigned: Assigned, devices: int) -> tuple[str, ...]:
    """The notes of a plan of ``graph``, which was traced for its own placement, on another."""
    return (*_scopes(graph, placement), *_mirrored(graph), *_idle(assigned, devices), *_batches(assigned), *_without_rule(assigned))


def _scopes(graph: Graph, placement: Placement) -> Iterator[str]:
    """Ops that stay where the program puts them though the plan was asked for elsewhere."""
    if placement == graph.placement:
        return
    scoped: dict[Placement, list[fx.Node]] = defaultdict(list)
    for node in graph.body.nodes:
        if node.op == "call_function" and node.meta["placement"] is not graph.placement:
            scoped[node.meta["placement"]].append(node)
    for where, nodes in scoped.items():
        yield (
            f"{_count(nodes)} from {nodes[0].meta['line']} on are placed on {devices_text(where.device_type, where.devices)} by flow.scope.placement and "
            f"stay there; take the scope out to plan them for {devices_text(placement.device_type, placement.devices)}"
        )


def _mirrored(graph: Graph) -> Iterator[str]:
    if graph.is_mirrored:
        yield "mirrored view: each device computes its own batch; a value in B is one of that shape on each device, and only variables are the same on all"


def _idle(assigned: Assigned, devices: int) -> Iterator[str]:
    idle = devices - len(assigned.ranks)
    if idle:
        yield f"{idle} of {devices} devices have no part in the job"


def _batches(assigned: Assigned) -> Iterator[str]:
    """Batches that are too small to give every device a part. In the mirrored view each device has a batch of its own."""
    if assigned.logical.is_mirrored:
        return
    small: dict[tuple[int, int], list[str]] = defaultdict(list)
    for number, feed in enumerate(assigned.logical.feeds()):
        node, axis = assigned.arguments["feed", number], feed.meta.get("batch_axis", 0)
        devices = node.meta["mesh"].size
        if node.users and axis is not None and len(node.meta["val"].shape) > axis and node.meta["val"].shape[axis] < devices:
            small[node.meta["val"].shape[axis], devices].append(feed.meta["name"])
    for (batch, devices), names in small.items():
        yield (
            f"the batch of {batch} ({', '.join(names)}) is smaller than its {devices} devices: it is not split, and every device computes all of it; "
            f"declare a batch of at least {devices}"
        )


def _without_rule(assigned: Assigned) -> Iterator[str]:
    """Ops that every device computes whole because nobody said how to split them."""
    whole: dict[str, list[fx.Node]] = defaultdict(list)
    for node in assigned.graph.nodes:
        if node.op == "call_function" and not node.meta.get("has_rule", True):
            whole[str(node.target)].append(node)
    for op, nodes in whole.items():
        origins = [node.meta["origin"] for node in nodes if node.meta["origin"] is not None]
        first = f", first {origins[0].meta['name']!r} at {origins[0].meta['line']}" if origins else ""
        yield f"{op} has no SBP rule: its inputs are made whole and every device computes all of it ({_count(nodes)}{first})"


def _count(nodes: list[fx.Node]) -> str:
    return f"{len(nodes)} op{'s' if len(nodes) > 1 else ''}"
