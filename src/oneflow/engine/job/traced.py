"""A job whose body has run: what a backend must know to run it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.placement import Placement
from oneflow.engine.ir.graph import Graph
from oneflow.engine.ir.notes import op_note
from oneflow.engine.job.settings import Settings
from oneflow.engine.job.signature import Signature


@dataclass(frozen=True)
class Traced:
    """``returns`` is the return annotation; ``calls`` counts the steps of a predict job, for its random ops."""

    name: str
    line: str
    graph: Graph
    settings: Settings
    signature: Signature
    returns: Any
    calls: torch.Tensor

    def placements(self) -> list[tuple[Placement, str]]:
        """Where the job's ops run, each with the user's line that placed it; a job without ops runs on its default
        placement."""
        assert self.graph.placement is not None
        found = {
            op_note(node).placement: op_note(node).line
            for node in reversed(self.graph.body.nodes)
            if node.op == "call_function"
        }
        return list(found.items()) or [(self.graph.placement, self.line)]

    @property
    def counter_name(self) -> str:
        """The variable that counts the steps of a train job."""
        return f"System-Train-TrainStep-{self.name}"

    @property
    def loss_scale_names(self) -> tuple[str, str]:
        """The variables of a dynamic loss scale: the scale, and the good steps since it changed."""
        prefix = f"System-Train-DynamicLossScale-{self.name}"
        return f"{prefix}-LossScale", f"{prefix}-GoodStepCounter"

    def micro_batches(self, tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
        """The inputs of one call, cut for each micro-batch."""
        count = self.settings.micro_batches
        cuts = [_cut(tensor, op_note(node).batch_axis, count) for tensor, node in zip(tensors, self.graph.inputs)]
        return [[parts[i] for parts in cuts] for i in range(count)]

    def tell_precision(self, device: torch.device) -> None:
        """Says on stderr where mixed precision saves no time."""
        if self.settings.mixed_precision and device.type == "cpu":
            print(
                f"oneflow: job {self.name!r} uses mixed precision on the CPU, as bfloat16: right, but slower than "
                f"float32",
                file=sys.stderr,
            )


def _cut(tensor: torch.Tensor, axis: int | None, count: int) -> list[torch.Tensor]:
    if count == 1 or axis is None:
        return [tensor] * count
    if tensor.shape[axis] % count:
        raise ArgumentError(f"a batch of {tensor.shape[axis]} cannot be cut into {count} micro-batches")
    return list(tensor.chunk(count, axis))
