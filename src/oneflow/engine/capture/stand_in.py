"""While a graph is traced, traced tensors stand in for the parameters and buffers of its modules, wherever a module
refers to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor


@contextmanager
def standing_in(
    modules: Mapping[str, nn.Module], names: Mapping[int, str], values: dict[str, Tensor]
) -> Iterator[None]:
    """Has ``values`` stand in for the tensors whose ids ``names`` has. Afterwards modules refer to what they did
    before; buffers that were replaced meanwhile are in ``values``, and other attributes keep what they were given
    unless it is a traced tensor."""
    every = list({id(m): m for module in modules.values() for m in module.modules()}.values())
    before = [(module, dict(module.__dict__), dict(module._parameters), dict(module._buffers)) for module in every]
    try:
        for module in every:
            _swap(module, names, values)
        yield
        for module, _, _, buffers in before:
            _note_replaced(module, buffers, names, values)
    finally:
        for module, attributes, parameters, buffers in before:
            _restore(module, attributes, parameters, buffers)


def _swap(module: nn.Module, names: Mapping[int, str], values: Mapping[str, Tensor]) -> None:
    def other(value: Any) -> Any:
        return values[names[id(value)]] if isinstance(value, Tensor) and id(value) in names else value

    for held in (module._parameters, module._buffers):
        held.update({name: other(value) for name, value in held.items()})
    for name, value in list(module.__dict__.items()):
        if isinstance(value, Tensor):
            module.__dict__[name] = other(value)
        elif type(value) in (list, tuple) and any(
            isinstance(item, Tensor) for item in value
        ):  # such as the flat weights of an LSTM
            module.__dict__[name] = type(value)(other(item) for item in value)


def _note_replaced(
    module: nn.Module, buffers: Mapping[str, Any], names: Mapping[int, str], values: dict[str, Tensor]
) -> None:
    for name, tensor in buffers.items():
        now = module._buffers.get(name)
        if tensor is not None and isinstance(now, Tensor) and now is not values[names[id(tensor)]]:
            values[names[id(tensor)]] = now


def _restore(
    module: nn.Module, attributes: Mapping[str, Any], parameters: Mapping[str, Any], buffers: Mapping[str, Any]
) -> None:
    for held, kept in ((module._parameters, parameters), (module._buffers, buffers)):
        for name in [name for name, value in held.items() if name not in kept and isinstance(value, FakeTensor)]:
            del held[name]
        held.update(kept)
    forget_traced(module.__dict__, attributes)


def forget_traced(attributes: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Has attributes that hold a traced tensor hold what they did before; new ones go."""
    for name, value in list(attributes.items()):
        if _is_traced(value):
            if name not in before:
                del attributes[name]
            elif value is before[name]:
                _forget(value)
            else:
                attributes[name] = before[name]


def _is_traced(value: Any) -> bool:
    if type(value) in (list, tuple, dict):
        return any(map(_is_traced, value.values() if type(value) is dict else value))
    return isinstance(value, FakeTensor)


def _forget(value: Any) -> None:
    """Takes traced tensors out of a list or dictionary that they were put into."""
    if type(value) is list:
        value[:] = [item for item in value if not _is_traced(item)]
    elif type(value) is dict:
        for key in [key for key, item in value.items() if _is_traced(item)]:
            del value[key]
