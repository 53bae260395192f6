"""torch's functions that make tensors, as those that make global ones; and the mode in which they all do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.global_tensor import create, mode
from oneflow.engine.global_tensor.building import current_building

_OWN: dict[str, Callable[..., Any]] = {
    name: getattr(create, name)
    for name in (
        "arange",
        "empty",
        "eye",
        "full",
        "normal",
        "ones",
        "rand",
        "randint",
        "randn",
        "randperm",
        "tensor",
        "zeros",
    )
}
_LIKE = {f"{name}_like": name for name in ("empty", "full", "ones", "rand", "randint", "randn", "zeros")}
_NEW = {f"new_{name}": name for name in ("empty", "full", "ones", "zeros")}
_FROM_NUMBERS = ("hann_window", "linspace", "logspace")  # the same on every rank
_IN_MODE = {getattr(torch, name): name for name in (*_OWN, *_FROM_NUMBERS)}


def make(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], placement: Any, sbp: Any) -> Any:
    """What the function of torch of this name makes, as a global tensor."""
    if placement is None or sbp is None:
        raise GlobalTensorError(
            f"a global tensor is made with placement= and sbp= together, got placement={placement} and sbp={sbp}"
        )
    if kwargs.pop("device", None) is not None:
        raise GlobalTensorError(
            f"flow.{name} was given a device and a placement; a global tensor lies on the devices of its placement"
        )
    graph = current_building()
    if graph is not None:
        return graph.laid(
            getattr(torch if hasattr(torch, name) else torch.Tensor, name)(*args, **kwargs), placement, sbp, None
        )
    where = {"placement": placement, "sbp": sbp}
    if name in _FROM_NUMBERS:
        requires_grad = kwargs.pop("requires_grad", False)
        return create.from_whole(getattr(torch, name)(*args, **kwargs), requires_grad=requires_grad, **where)
    if name in _LIKE or name in _NEW:
        like, *others = args
        kwargs = {**kwargs, "dtype": kwargs.get("dtype") or like.dtype}
        kwargs.pop("memory_format", None)
        return _beside(name, like, others, kwargs, where)
    return _OWN[name](*args, **kwargs, **where)


def _beside(name: str, like: torch.Tensor, others: list[Any], kwargs: dict[str, Any], where: dict[str, Any]) -> Any:
    if name in _NEW:
        size = others.pop(0) if others else kwargs.pop("size", None)
        shape = tuple(like.shape if size is None else size)
    else:
        shape = tuple(like.shape)
    function = _OWN[{**_LIKE, **_NEW}[name]]
    if name == "randint_like":
        return (
            function(*others, shape, **kwargs, **where)
            if len(others) == 2
            else function(0, *others, shape, **kwargs, **where)
        )
    return function(shape, *others, **kwargs, **where)


class _Making(TorchFunctionMode):
    """Sees every function of torch; those that make tensors make them as a mode says."""

    def __init__(self, current: mode.Mode) -> None:
        super().__init__()
        self.current = current

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = _IN_MODE.get(func)
        if (
            name is None or mode.current_mode() is not self.current
        ):  # a mode within this one has made them local again, or has its own
            return func(*args, **kwargs)
        for only_local in ("device", "out", "layout", "pin_memory"):
            kwargs.pop(only_local, None)
        return make(name, args, kwargs, self.current.place, self.current.sbp)


def entered(current: mode.Mode | None) -> Callable[[], None]:
    """Enters a mode; what is given leaves it."""
    token = mode.enter(current)
    making = _Making(current) if current is not None else None
    if making is not None:
        making.__enter__()

    def leave() -> None:
        if making is not None:
            making.__exit__(None, None, None)
        mode.leave(token)

    return leave
