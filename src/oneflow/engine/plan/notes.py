"""What a plan says in words: where a job does not use its devices as one might expect, and what to do about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torch import fx

from oneflow.engine.assignment.distribute import Assigned
from oneflow.engine.assignment.place import flow_back
from oneflow.engine.core.placement import Placement
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import op_note
from oneflow.engine.plan.listing import devices_text
from oneflow.engine.program.notes import joint_note, val


def notes_of_job(graph: Graph, placement: Placement) -> tuple[str, ...]:
    """What a plan says of a job that was traced for its own placement, on another."""
    return (*_scopes(graph, placement), *_mirrored(graph))


def notes_of(assigned: Assigned, devices: int) -> tuple[str, ...]:
    """What a plan says of any step."""
    return (
        *_auto(assigned),
        *_bubble(assigned),
        *_in_turn(assigned),
        *_idle(assigned, devices),
        *_batches(assigned),
        *_without_rule(assigned),
    )


def _auto(assigned: Assigned) -> Iterator[str]:
    if assigned.auto is not None:
        yield f"auto parallel chose {assigned.auto}"


def _bubble(assigned: Assigned) -> Iterator[str]:
    """What a pipeline costs: its stages wait for the first micro-batch to come and for the last to go."""
    stages, training = len(assigned.stages or []), assigned.decl.training
    if stages < 2 or training is None:
        return
    count = training.micro_batches
    busy = count / (count + stages - 1)
    told = f"{count} micro-batches go through {stages} stages: each works m/(m+p-1) = {100 * busy:.1f} % of a step and waits for the rest (the bubble), if all take the same time"
    yield (
        told
        if count >= stages
        else f"{told}; with fewer micro-batches than stages most of them wait: set_gradient_accumulation_steps({4 * stages}) or more"
    )


def _in_turn(assigned: Assigned) -> Iterator[str]:
    """Stages that do not work at the same time."""
    training, found = assigned.decl.training, flow_back(assigned.graph)
    if training is None or training.micro_batches == 1 or found is None:
        return
    value, reader = found
    feeds = {assigned.arguments["feed", number]: feed.name for number, feed in enumerate(assigned.decl.feeds)}
    what, advice = f"what {_told(value)} makes", "have values go ahead only"
    if value in feeds:
        what, advice = f"input {feeds[value]!r}", "give it on the placement of the stage that reads it"
    way = f"from ranks {_ranks(value)} back to ranks {_ranks(reader)}, for {_told(reader)}"
    yield f"the {training.micro_batches} micro-batches go through the stages one after the other, not as a pipeline: {what} goes {way}; {advice}"


def _told(node: fx.Node) -> str:
    origin = joint_note(node).origin
    return f"{origin.name!r} at {origin.line}" if origin is not None else str(node.target)


def _ranks(node: fx.Node) -> str:
    ranks = joint_note(node).placed.ranks
    return f"{ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else str(ranks[0])


def _scopes(graph: Graph, placement: Placement) -> Iterator[str]:
    """Ops that stay where the program puts them though the plan was asked for elsewhere."""
    if placement == graph.placement:
        return
    scoped: dict[Placement, list[fx.Node]] = defaultdict(list)
    for node in graph.body.nodes:
        if node.op == "call_function" and op_note(node).placement is not graph.placement:
            scoped[op_note(node).placement].append(node)
    for where, nodes in scoped.items():
        yield (
            f"{_count(nodes)} from {op_note(nodes[0]).line} on are placed on "
            f"{devices_text(where.device_type, where.devices)} by flow.scope.placement and "
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
    """Batches that are too small to give every device a part. In the mirrored view each device has a batch of its
    own."""
    if assigned.decl.is_mirrored:
        return
    small: dict[tuple[int, int], list[str]] = defaultdict(list)
    for number, feed in enumerate(assigned.decl.feeds):
        node, axis = assigned.arguments["feed", number], feed.batch_axis
        devices = joint_note(node).placed.size
        if node.users and axis is not None and len(val(node).shape) > axis and val(node).shape[axis] < devices:
            small[val(node).shape[axis], devices].append(feed.name)
    for (batch, devices), names in small.items():
        yield (
            f"the batch of {batch} ({', '.join(names)}) is smaller than its {devices} devices: it is not split, and "
            f"every device computes all of it; "
            f"declare a batch of at least {devices}"
        )


def _without_rule(assigned: Assigned) -> Iterator[str]:
    """Ops that every device computes whole because nobody said how to split them."""
    whole: dict[str, list[fx.Node]] = defaultdict(list)
    for node in assigned.graph.nodes:
        if node.op == "call_function" and not joint_note(node).has_rule:
            whole[str(node.target)].append(node)
    for op, nodes in whole.items():
        origins = [origin for node in nodes if (origin := joint_note(node).origin) is not None]
        first = f", first {origins[0].name!r} at {origins[0].line}" if origins else ""
        yield f"{op} has no SBP rule: its inputs are made whole and every device computes all of it ({_count(nodes)}{first})"


def _count(nodes: list[fx.Node]) -> str:
    return f"{len(nodes)} op{'s' if len(nodes) > 1 else ''}"
