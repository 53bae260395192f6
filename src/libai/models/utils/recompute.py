"""Which parts of a model are computed again in the backward pass where it is asked to save memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import oneflow as flow
from oneflow import nn

_log = logging.getLogger(__name__)


def recomputed_in(model: nn.Module) -> list[str]:
    """The names of the modules: transformer layers if there are any; else what stands in lists of modules, and
    sequences as they are.

    Of those the only one stays as it is: all that it would not keep is back when the backward pass begins, so that no
    memory would be saved.
    """
    layers = [
        name
        for name, module in model.named_modules()
        if any(kind.__name__ == "TransformerLayer" for kind in type(module).__mro__)
    ]
    found = layers or list(_outermost(model, ""))
    if layers or len(found) > 1:
        return found
    _log.info(
        "train.activation_checkpoint: %s has neither transformer layers nor several sequences of modules; computing "
        "again would save no memory",
        type(model).__name__,
    )
    return []


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
