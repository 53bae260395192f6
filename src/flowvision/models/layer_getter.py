"""The first layers of a network, with what some of them give."""

from __future__ import annotations

from collections.abc import Mapping

import oneflow.nn as nn
from oneflow import Tensor
from oneflow.engine.core.errors import ArgumentError


class IntermediateLayerGetter(nn.ModuleDict):
    """``return_layers`` has for each child whose output is wanted the name it gets; children after the last of them are
    left out."""

    def __init__(self, model: nn.Module, return_layers: Mapping[str, str]) -> None:
        children = dict(model.named_children())
        missing = [name for name in return_layers if name not in children]
        if missing:
            raise ArgumentError(f"the network has no layer {missing[0]!r}; it has {', '.join(children)}")
        order = list(children)
        last = max(order.index(name) for name in return_layers) if return_layers else -1
        super().__init__({name: children[name] for name in order[: last + 1]})
        self.return_layers = dict(return_layers)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        found = {}
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                found[self.return_layers[name]] = x
        return found
