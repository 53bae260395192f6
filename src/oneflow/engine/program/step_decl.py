"""What is known of a step beside its joint graph, whichever door it came through: a job function, or a graph of
modules.

From here on nobody asks what a step was traced from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oneflow.engine.core.bucket_limits import BucketLimits
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.variable import VariableDecl
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import op_note
from oneflow.engine.sharding.mesh import Layout
from oneflow.optimizer.training import Training


@dataclass(frozen=True)
class FeedDecl:
    """An input of a step: its name, and the dim along which it is cut for devices and micro-batches (None: it is not).
    One that lies on ranks already does so in its ``layout``."""

    name: str
    batch_axis: int | None = None
    layout: Layout | None = None


@dataclass(frozen=True)
class StepDecl:
    """A step by its name ``job``: the variables that it reads, what it is fed, and how it trains, if it does.
    ``loss_line`` is where the user asks for the training. What has no placement of its own runs on ``placement``.
    ``keeps_parts``: every rank keeps its part of the results, whoever else has the same. ``fusion`` is its
    own fusion setting, if it has one (``fusion_setting.py``)."""

    job: str
    decls: Mapping[str, VariableDecl]
    feeds: tuple[FeedDecl, ...]
    training: Training | None = None
    placement: Placement | None = None
    is_mirrored: bool = False
    loss_line: str = ""
    keeps_parts: bool = False
    buckets: BucketLimits = BucketLimits()
    fusion: str | None = None

    def require_training(self) -> Training:
        """How the variables of a step that trains are updated; no other has such a thing."""
        assert self.training is not None, f"{self.job!r} does not train"
        return self.training


def decl_of_job(graph: Graph) -> StepDecl:
    """The declaration of a traced job."""
    return StepDecl(
        job=graph.job,
        decls={name: graph.decls[name] for name in graph.variables},
        feeds=tuple(FeedDecl(op_note(node).name, op_note(node).batch_axis) for node in graph.feeds()),
        training=graph.training,
        placement=graph.placement,
        is_mirrored=graph.is_mirrored,
        loss_line=op_note(graph.losses[0]).line if graph.losses else "",
    )
