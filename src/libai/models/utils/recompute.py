"""Which parts of a model are computed again in the backward pass where it is asked to save memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oneflow as flow
from oneflow import nn


def recomputed_in(model: nn.Module) -> list[str]:
    """The names of the modules: transformer layers if there are any; else what stands in lists of modules, and sequences as they are."""
    layers = [name for name, module in model.named_modules() if any(kind.__name__ == "TransformerLayer" for kind in type(module).__mro__)]
    return layers or list(_outermost(model, ""))


def _outermost(module: nn.Module, path: str) -> Iterator[str]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if isinstance(child, nn.Sequential) or (isinstance(module, nn.ModuleList) and _trains(child)):
            if _trains(child):
                yield inner
        else:
            yield from _outermost(child, inner)


def _trains(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def recompute_eagerly(model: nn.Module) -> None:
    """Has those modules compute their activations again, where no graph does it for them."""
    for name in recomputed_in(model):
        module = model.get_submodule(name)
        module.forward = _Recomputed(module.forward)


class _Recomputed:
    """A forward function that is run again in the backward pass."""

    def __init__(self, forward: Any) -> None:
        self._forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return flow.utils.checkpoint.checkpoint(self._forward, *args, **kwargs)
