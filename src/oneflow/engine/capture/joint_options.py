"""What joint graph a job wants: its precision, what is differentiated, how its losses are scaled."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import fx

from oneflow.engine.capture.job_joint import JointOptions
from oneflow.engine.capture.joint import Like
from oneflow.engine.capture.precision import casting, half_dtype
from oneflow.engine.core.errors import ArgumentError, UnsupportedError
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.interpret import Adapt
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ir.trained import trained_by
from oneflow.optimizer.schedule import CustomScheduler
from oneflow.optimizer.training import Training


def joint_options(
    graph: Graph, tensors: Mapping[fx.Node, torch.Tensor | Like], device: torch.device, mixed_precision: bool
) -> JointOptions:
    """The options of a job's joint graph, given what its placeholders look like."""
    adapt: Adapt = casting(graph, half_dtype(device)) if mixed_precision else lambda node, inputs: inputs
    training: Training | None = graph.training
    if training is None:
        return JointOptions(graph, tensors, device, adapt)
    scale = None if training.loss_scale.is_dynamic else training.loss_scale.initial
    trained = tuple(decl.name for decl in trained_by(graph, training.optimizer))
    rates = tuple(custom_rates(graph).values())
    return JointOptions(graph, tensors, device, adapt, trained, scale, training.micro_batches, rates)


def rate_blob(optimizer: object) -> str | None:
    """Returns the logical name of the blob that is the optimizer's rate; None where a schedule computes it."""
    schedule = getattr(optimizer, "lr_scheduler", None)
    return schedule.lbn if isinstance(schedule, CustomScheduler) else None


def custom_rates(graph: Graph) -> dict[str, fx.Node]:
    """Returns the nodes of blobs that are learning rates, by logical blob name."""
    if graph.training is None:
        return {}
    by_name = {f"{op_note(node).name}/out": node for node in graph.body.nodes}
    blobs = [name for member in graph.training.optimizer.members() if (name := rate_blob(member)) is not None]
    missing = [name for name in blobs if name not in by_name]
    if missing:
        raise ArgumentError(f"CustomScheduler: job {graph.job!r} has no blob {missing[0]!r}")
    if blobs and graph.training.in_two_parts:
        raise UnsupportedError("CustomScheduler cannot be used with gradient accumulation or a dynamic loss scale")
    return {name: by_name[name] for name in blobs}
