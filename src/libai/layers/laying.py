"""Where the tensors of layers lie: how parameters are made, and how values are brought to a layer's stage.

Layers compute with global tensors, and after ``model.to_local()`` in a process alone with local ones: every function
here leaves local values as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

import oneflow as flow
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.global_tensor.create import from_whole

B = flow.sbp.broadcast
S = flow.sbp.split
Init = Callable[[Any], Any]


def skips_init() -> bool:
    """Whether weights of linear layers and embeddings are left as they come, because others are loaded: the environment
    says so."""
    return os.getenv("ONEFLOW_LINEAR_EMBEDDING_SKIP_INIT", "0") == "1"


def new_parameter(
    shape: Sequence[int],
    init: Init,
    layer_idx: int = 0,
    tensor_sbp: Any = B,
    dtype: torch.dtype = torch.float32,
    requires_grad: bool = True,
) -> nn.Parameter:
    """A parameter on the stage of a layer, along the tensor axis as ``tensor_sbp`` says. Its first values are those of
    one process, on any layout."""
    return nn.Parameter(new_tensor(shape, init, layer_idx, tensor_sbp, dtype), requires_grad)


def new_tensor(
    shape: Sequence[int], init: Init, layer_idx: int = 0, tensor_sbp: Any = B, dtype: torch.dtype = torch.float32
) -> Any:
    """A tensor that lies as a parameter does. Each rank that has a part of it draws the whole from one seed, which is
    rank 0's, and keeps its part."""
    place, sbp = dist.get_layer_placement(layer_idx), dist.get_nd_sbp([B, tensor_sbp])
    seed = dist.common_seed()
    is_here = dist.get_rank() in place.ranks
    whole = torch.empty(tuple(shape), dtype=dtype, device=None if is_here else "meta")
    if is_here and not whole.is_meta:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            init(whole)
    return from_whole(whole, place, sbp)


def at_layer(value: Any, layer_idx: int) -> Any:
    """A value on the stage of a layer; None stays."""
    if value is None or not value.is_global:
        return value
    place = dist.get_layer_placement(layer_idx, value.placement.type)
    return value if value.placement == place else value.to_global(placement=place)


def laid(value: Any, tensor_sbp: Any = B) -> Any:
    """Activations as they lie between layers, and their gradients too: the batch cut among data parallel ranks, and
    along the tensor axis as ``tensor_sbp`` says."""
    if not value.is_global:
        return value
    sbp = dist.get_nd_sbp([S(0), tensor_sbp])
    return value.to_global(sbp=sbp, grad_sbp=sbp) if value.is_floating_point() else value.to_global(sbp=sbp)


def made_like(value: Any, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What ``make`` gives, such as ``flow.arange``, whole where ``value`` lies."""
    if value.is_global:
        return make(*args, **kwargs, placement=value.placement, sbp=[B] * value.placement.ranks.ndim)
    return make(*args, **kwargs, device=value.device)
