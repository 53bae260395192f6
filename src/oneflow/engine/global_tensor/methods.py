"""Methods of local tensors and modules that make global ones: ``to_global``, ``to_local`` and their older names."""

from __future__ import annotations

from typing import Any

import torch

from oneflow.engine.core.errors import GlobalTensorError, GraphError
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.global_tensor.building import current_building
from oneflow.engine.global_tensor.recurrent import begin_with_global_zeros
from oneflow.engine.global_tensor.sbp import broadcast, partial_sum
from oneflow.engine.global_tensor.sbp import sbp as Sbp


@entry
def to_global(
    self: torch.Tensor,
    placement: Any = None,
    sbp: Any = None,
    *,
    grad_sbp: Any = None,
    check_meta: bool = True,
    copy: bool = False,
) -> Any:
    """The global tensor of which the local tensors of all ranks are the parts: slices of a split, terms of a sum; of
    what is broadcast, the first rank's counts. All ranks call this, those outside the placement too, with whatever
    tensor they have."""
    graph = current_building()
    if graph is not None:
        return graph.laid(self, placement, sbp, grad_sbp)
    if placement is None or sbp is None:
        raise GlobalTensorError(
            f"a local tensor becomes global with placement and sbp together, got placement={placement} and sbp={sbp}"
        )
    if grad_sbp is not None:
        raise GlobalTensorError("grad_sbp is for tensors that are global already; the gradient of this one is local")
    from oneflow.engine.global_tensor.members import from_local  # with it come the rules of every op

    return from_local(self, placement, sbp)


def local_to_global(
    self: torch.Tensor, placement: Any = None, sbp: Any = None, *, check_meta: bool = True, copy: bool = False
) -> Any:
    """``to_global`` of a local tensor."""
    return to_global(self, placement, sbp)


@entry
def to_local(self: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
    """This rank's part of a global tensor; a local one has none."""
    if current_building() is not None:
        raise GraphError(
            "to_local in build(): a graph of global tensors is compiled for all ranks at once; return the tensor, and "
            "call to_local on the result"
        )
    raise GlobalTensorError("Expected global tensor for to_local but got local tensor!")


@entry
def global_to_global(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``to_global`` of a global tensor."""
    if current_building() is not None:
        return to_global(self, *args, **kwargs)
    raise GlobalTensorError(
        "Expected global tensor for global_to_global but got local tensor! Use local_to_global or to_global"
    )


def _of_global_tensors(name: str) -> Any:
    def refused(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        raise GlobalTensorError(f"Expected global tensor for {name} but got local tensor!")

    return refused


@entry
def module_to_global(self: torch.nn.Module, placement: Any = None, sbp: Any = None) -> torch.nn.Module:
    """Makes the parameters and buffers global, in place, and returns the module: local ones with placement and sbp
    together; of those that are global already the layout is changed. What has no dims, such as the count of a batch
    norm, is broadcast where others are split."""
    made: dict[int, Any] = {}

    def laid(tensor: Any) -> Any:
        return _call(tensor, "to_global", placement=placement, sbp=sbp if tensor.dim() else _not_split(sbp))

    self.apply(begin_with_global_zeros)
    return _replaced(self, lambda tensor: _once(made, tensor, lambda: laid(tensor)))


def _not_split(sbp: Any) -> Any:
    if isinstance(sbp, (list, tuple)):
        return [_not_split(one) for one in sbp]
    return broadcast if isinstance(sbp, Sbp) and sbp not in (broadcast, partial_sum) else sbp


def module_to_local(self: torch.nn.Module) -> torch.nn.Module:
    """Makes the parameters and buffers local, in place, and returns the module: each rank keeps its part."""
    made: dict[int, Any] = {}
    return _replaced(self, lambda tensor: _once(made, tensor, lambda: _call(tensor, "to_local", copy=True)))


def _once(made: dict[int, Any], tensor: torch.Tensor, make: Any) -> Any:
    """A tensor that two modules share is made once."""
    if id(tensor) not in made:
        with torch.no_grad():
            found = make()
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        made[id(tensor)] = torch.nn.Parameter(found.detach(), tensor.requires_grad) if is_parameter else found
    return made[id(tensor)]


def _replaced(module: torch.nn.Module, make: Any) -> torch.nn.Module:
    for one in module.modules():
        for tensors in (one._parameters, one._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = make(tensor)
    return module


def _call(tensor: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls a method of a global tensor, or the one for local tensors, which torch's class may lack."""
    method = getattr(type(tensor), name, None) or TENSOR_METHODS[name]
    return method(tensor, *args, **kwargs)


def as_function(name: str) -> Any:
    """Returns a method of tensors as a function."""

    def function(input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return _call(input, name, *args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``input.{name}(...)``."
    return function


TENSOR_METHODS: dict[str, Any] = {
    "to_global": to_global,
    "to_consistent": to_global,
    "local_to_global": local_to_global,
    "global_to_global": global_to_global,
    "to_local": to_local,
    "global_id": _of_global_tensors("global_id"),
    "check_meta_consistency": _of_global_tensors("check_meta_consistency"),
    "is_consistent": property(lambda self: current_building() is not None),
}
"""What every tensor has, by name; a global tensor has its own of each."""

MODULE_METHODS: dict[str, Any] = {"to_global": module_to_global, "to_local": module_to_local}


def install() -> None:
    """Gives tensors and modules of torch these methods."""
    for name, method in TENSOR_METHODS.items():
        setattr(torch.Tensor, name, method)
    for name, method in MODULE_METHODS.items():
        setattr(torch.nn.Module, name, method)
