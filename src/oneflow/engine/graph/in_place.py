"""Local parameters and buffers of a graph's modules as global tensors, in place: whoever holds them, such as
optimizers, holds global tensors from then on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.global_tensor.sbp import broadcast
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.world import join


def brought(tensor: Tensor, place: placement) -> GlobalTensor:
    """A local tensor whole on every rank of a placement, with the value that it has on rank 0, wherever that placement
    begins. All ranks come here."""
    with torch.no_grad():
        made: Any = tensor.detach().to_global(placement(place.type, range(join().size)), broadcast)  # type: ignore[attr-defined]
        return made.to_global(place, (broadcast,) * len(place.hierarchy))


def make_global(tensor: Tensor, place: placement) -> None:
    """Makes a local tensor what ``brought`` gives, in place. Its gradient is forgotten."""
    needs_grad, is_parameter = tensor.requires_grad, isinstance(tensor, nn.Parameter)
    made = brought(tensor, place)
    made = GlobalTensor(made._part, made._spec)
    if is_parameter:
        made._is_param = True
    tensor.grad = None
    torch.utils.swap_tensors(tensor, made)
    tensor.requires_grad_(needs_grad)


@contextmanager
def without_weak_references(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Drops the weak references that recurrent modules keep of their weights, and makes them again at the end: a tensor
    with weak references cannot be swapped."""
    recurrent = [module for module in modules if isinstance(module, nn.RNNBase)]
    for module in recurrent:
        module._flat_weight_refs = []
    try:
        yield
    finally:
        for module in recurrent:
            module._init_flat_weights()
