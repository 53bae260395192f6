"""Where the parameters of a model lie, and the stages of a pipeline for a model that says nothing about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import oneflow as flow
from libai.utils import distributed as dist
from oneflow import nn


def place(model: nn.Module) -> None:
    """Makes parameters and buffers that are local tensors global ones: whole on every rank of their stage.

    In a pipeline a model that is not placed by itself is cut between its modules that have parameters: these are its
    layers, in the order of ``modules()``, shared out as ``train.dist`` says. What comes to such a module is moved to
    its stage.
    """
    laying = _Laying()
    if dist.get_pipeline_parallel_size() > 1 and not _is_placed(model):
        for module, layer in layers_of(model):
            laying.lay(module, layer)
            module.register_forward_pre_hook(_Mover(layer), with_kwargs=True)
    for module in model.modules():
        laying.lay(module, 0)


def layers_of(model: nn.Module) -> Iterator[tuple[nn.Module, int]]:
    """The modules of a model that have parameters of their own, each with the layer among ``pipeline_num_layers`` that
    it counts as."""
    owners = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    layers = dist.get_dist_util().pipeline_num_layers
    for number, module in enumerate(owners):
        yield module, number * layers // len(owners)


def is_cut_here(module: nn.Module) -> bool:
    """Whether it was made a layer of a pipeline by :func:`place`."""
    return any(isinstance(hook, _Mover) for hook in module._forward_pre_hooks.values())


def _is_placed(model: nn.Module) -> bool:
    tensors: list[Any] = list(model.parameters())
    return any(tensor.is_global for tensor in tensors) or hasattr(type(model), "set_pipeline_stage_id")


class _Laying:
    """Makes tensors global; one that two modules share is made once, for the first of them."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}  # with the tensor itself: its id would be given to another one
        self._sbp = dist.get_nd_sbp([flow.sbp.broadcast, flow.sbp.broadcast])

    def lay(self, module: nn.Module, layer: int) -> None:
        """The module's own tensors, on the stage of a layer."""
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = self._laid(tensor, layer)

    def _laid(self, tensor: Any, layer: int) -> Any:
        if id(tensor) not in self._made:
            laid = self._anew(tensor.detach(), layer)
            made = nn.Parameter(laid, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else laid
            self._made[id(tensor)], self._made[id(made)] = (tensor, made), (made, made)
        return self._made[id(tensor)][1]

    def _anew(self, tensor: Any, layer: int) -> Any:
        if tensor.is_global:
            return dist.convert_to_distributed_default_setting(tensor)
        target = dist.get_layer_placement(layer)
        # Every rank has made weights of its own: those of rank 0 count, as they do in one process.
        first = tensor.to_global(flow.placement(target.type, [0]), flow.sbp.broadcast)
        return first.to_global(placement=target, sbp=self._sbp)


class _Mover:
    """A hook that moves what a module is called with to the module's stage."""

    def __init__(self, layer: int) -> None:
        self.layer = layer

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        target = dist.get_layer_placement(self.layer)
        return tuple(_moved(value, target) for value in args), {
            name: _moved(value, target) for name, value in kwargs.items()
        }


def _moved(value: Any, target: Any) -> Any:
    is_tensor: bool = flow.is_tensor(value)
    if not is_tensor or not value.is_global or value.placement == target:
        return value
    return value.to_global(placement=target)
