"""What a graph is before it is compiled: all that tracing and compiling ask of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from oneflow.graph.config import GraphConfig
from oneflow.graph.optimizers import Added
from oneflow.graph.proxy import GraphModule
from oneflow.optimizer.loss_scale import LossScale


class Definition(Protocol):
    """A graph as its user defined it. ``step`` counts its steps; ``scale_state`` is its loss scale, and the good steps since that changed, where it is
    dynamic."""

    config: GraphConfig
    modules: Mapping[str, nn.Module]
    settings: Mapping[int, GraphModule]
    added: Sequence[Added]
    step: Tensor
    loss_scale: LossScale
    scale_state: tuple[Tensor, Tensor] | None

    @property
    def name(self) -> str: ...

    def build(self, *args: Any, **kwargs: Any) -> Any: ...
