"""Jobs compiled for many devices, without any: what each node's layout is, and what the ranks' programs send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import fx

import oneflow as flow
from oneflow.engine import collective
from oneflow.engine.assignment.distribute import Assigned, CompileTarget, declared_feeds, distribute_job
from oneflow.engine.assignment.storage import variable_layouts
from oneflow.engine.job.function import default_session
from oneflow.engine.lowering.rank_program import lower_job
from oneflow.engine.program.notes import boxing_note, layout_of, local_note, val
from oneflow.engine.program.program import After, Program, nothing_after
from oneflow.engine.sharding.mesh import Layout

# Those that only take a part of what a rank has, or add zeros to it, are no exchange.
_LOCAL = {collective.part_of, collective.as_partial, collective.part_as_partial, collective.bucket_wait}


def compiled(body: Callable[..., Any], devices: int, train: bool = True, config: Any = None) -> Assigned:
    """A job for ``devices`` ranks of one machine; ``body`` has its inputs as default values."""
    return compiled_for(body, devices, train, config)


def compiled_for(
    body: Callable[..., Any],
    devices: int,
    train: bool = True,
    config: Any = None,
    after: After = nothing_after,
    layouts: Mapping[str, Layout] | None = None,
) -> Assigned:
    """The same, with a look after every stage, or for variables that lie as ``layouts`` says."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)
    flow.global_function("train" if train else "predict", config)(body)
    session = default_session()
    session.trace()
    (job,) = session.jobs.values()
    cpu = torch.device("cpu")
    ranks = {(0, device): device for device in range(devices)}
    assert job.graph is not None
    lie = variable_layouts(job.graph, ranks) if layouts is None else layouts
    target = CompileTarget(ranks, lie, declared_feeds(job.graph, cpu), cpu, job.settings.mixed_precision)
    return distribute_job(job.graph, target, after)


def calls(program: Program) -> list[fx.Node]:
    return [node for section in program.sections.values() for node in section.graph.nodes if node.op == "call_function"]


def exchanges(program: Program) -> Counter[str]:
    """How often each collective is called."""
    found = [
        node.target for node in calls(program) if getattr(node.target, "__module__", "").startswith(collective.__name__)
    ]
    return Counter(target.__name__ for target in found if target not in _LOCAL)


def reduced_bytes(program: Program) -> int:
    """The size of all that is summed over ranks in a step, by buckets or alone."""
    total = 0
    for node in calls(program):
        if node.target is collective.bucket_start:
            total += sum(_size(member.boxing.node) for member in local_note(node).members if member.boxing is not None)
        elif node.target in (collective.all_reduce, collective.reduce_parts) and local_note(node).boxing is not None:
            total += _size(boxing_note(node).node)
    return total


def _size(node: fx.Node) -> int:
    return prod(val(node).shape) * val(node).dtype.itemsize


def gradient_bytes(assigned: Assigned) -> int:
    return sum(_size(node) for node in assigned.outputs.gradients.values())


def layouts(assigned: Assigned, op: Any) -> list[str]:
    """How the results of every call of an aten op lie, in order."""
    nodes = [node for node in assigned.graph.nodes if node.target is op]
    return [",".join(map(str, layout_of(node).sbp)) for node in nodes]


def programs(assigned: Assigned) -> list[Program]:
    return [lower_job(assigned, rank) for rank in assigned.ranks]
