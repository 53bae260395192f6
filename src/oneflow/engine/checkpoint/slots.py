"""Values that a pickle makes first and tells their state later. A slot keeps what it is told, and is the value when the
whole pickle is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch

from oneflow.engine.checkpoint.stored_tensor import StoredTensor, reference_in

Fill = Callable[[Any], Any]
_ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray)
# Values that hold no others.
_PLAIN = (range, slice, PurePath, np.generic, np.ndarray, np.dtype, torch.dtype, torch.device, torch.Size)


class Slot:
    """Base of all slots. They are classes of our own, so that no pickle can write into a class that others use."""

    def __setstate__(self, state: Any) -> None:
        raise UnpicklingError(f"a {type(self).__name__} is given a state")

    def value(self, fill: Fill, tensor: Callable[[StoredTensor], Any]) -> Any:
        """What the slot stands for. ``fill`` gives the values of slots inside its state, ``tensor`` those of
        references."""
        raise NotImplementedError


class TensorSlot(Slot):
    """A tensor in a pickle of OneFlow's or ours, whichever way it was reduced."""

    is_parameter = False

    def __new__(cls, *arguments: Any, **named: Any) -> TensorSlot:
        slot = super().__new__(cls)
        slot.parts = [*arguments, named]
        return slot

    parts: list[Any]

    @staticmethod
    def of(reference: StoredTensor) -> TensorSlot:
        return TensorSlot(reference)

    def __setstate__(self, state: Any) -> None:
        self.parts.append(state)

    def value(self, fill: Fill, tensor: Callable[[StoredTensor], Any]) -> Any:
        first = self.parts[0]
        return tensor(first if isinstance(first, StoredTensor) else reference_in(self.parts, self.is_parameter))


class ParameterSlot(TensorSlot):
    """A parameter in a pickle of OneFlow's."""

    is_parameter = True


class Unused(Slot):
    """Where and how a global tensor was laid out. It may stand inside a tensor's state, and is not looked at."""

    def __new__(cls, *arguments: Any, **named: Any) -> Unused:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass

    def value(self, fill: Fill, tensor: Callable[[StoredTensor], Any]) -> Any:
        raise UnpicklingError("it holds a placement or an sbp by itself; only tensors are read")


class Filler:
    """Puts the values of slots in their places, within the containers that were read. Whatever was one object stays
    one."""

    def __init__(self, tensor: Callable[[StoredTensor], Any]) -> None:
        self._tensor = tensor
        self._done: dict[int, tuple[Any, Any]] = {}  # by id, with the object itself, so that no other gets its id

    def fill(self, held: Any) -> Any:
        """The object with values for slots; lists and dictionaries are changed in place, tuples and sets made anew
        where they must be."""
        if type(held) in _ATOMS:
            return held
        if id(held) in self._done:
            found = self._done[id(held)][1]
            if found is _IN_WORK:
                raise UnpicklingError(f"a {type(held).__name__} that contains itself cannot be read")
            return found
        self._done[id(held)] = (held, held if isinstance(held, (list, dict)) else _IN_WORK)
        value = self._value(held)
        self._done[id(held)] = (held, value)
        return value

    def _value(self, held: Any) -> Any:
        if isinstance(held, Slot):
            return held.value(self.fill, self._tensor)
        if isinstance(held, list):
            held[:] = [self.fill(value) for value in held]
        elif isinstance(held, dict):
            self._fill_dict(held)
        elif type(held) in (tuple, set, frozenset):
            values = [self.fill(value) for value in held]
            return held if all(a is b for a, b in zip(values, held)) else _made(type(held), values)
        elif not isinstance(held, _PLAIN):
            raise UnpicklingError("it holds a class or a function by itself; only values are read")
        return held

    def _fill_dict(self, held: dict[Any, Any]) -> None:
        attributes = getattr(held, "__dict__", {})  # a state_dict has its _metadata there
        require_new_names(attributes, type(held))
        items = [(self.fill(key), self.fill(value)) for key, value in held.items()]
        _made(set, [key for key, _ in items])
        held.clear()
        for key, value in items:  # a Counter's update would add
            held[key] = value
        attributes.update({name: self.fill(value) for name, value in attributes.items()})


def require_new_names(attributes: dict[Any, Any], kind: type) -> None:
    """Refuses attributes that would stand before what the class itself has, such as its methods."""
    taken = [name for name in attributes if not isinstance(name, str) or hasattr(kind, name)]
    if taken:
        raise UnpicklingError(f"it gives a {kind.__name__} the attribute {taken[0]!r}")


def _made(kind: type, values: list[Any]) -> Any:
    try:
        return kind(values)
    except TypeError as error:  # an array as a key
        raise UnpicklingError(str(error)) from None


_IN_WORK = object()  # a tuple or set whose parts are being filled
