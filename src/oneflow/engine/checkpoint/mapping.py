"""Where loaded tensors go: what ``map_location`` may be, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.serialization import default_restore_location

from oneflow.engine.core.errors import ArgumentError

_CPU = torch.device("cpu")
_Move = Callable[[Any, str], Any]  # a storage and the name of its place, to the storage in its new place


@dataclass(frozen=True)
class Placed:
    """Brings a tensor from the CPU to its place: to a device, or where a function moves its storage to. ``for_torch``
    says it to ``torch.load``."""

    device: torch.device | None
    for_torch: torch.device | _Move

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.device is not None:
            return tensor.to(self.device)
        assert callable(self.for_torch)
        storage = self.for_torch(tensor.untyped_storage(), "cpu")
        if storage is None:
            return tensor
        return torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(storage, 0, tensor.shape, tensor.stride())


def placed(map_location: Any) -> Placed:
    """Reads the argument: None (the CPU), a device or its name, a dictionary of such by name, or a function of a
    storage and its place."""
    if map_location is None or isinstance(map_location, (str, torch.device)):
        device = _device("cpu" if map_location is None else map_location)
        return Placed(device, device)
    if isinstance(map_location, Mapping):
        devices = {str(name): _device(value) for name, value in map_location.items()}
        return Placed(
            devices.get("cpu", _CPU),
            lambda storage, place: default_restore_location(storage, str(devices.get(place, _CPU))),
        )
    if callable(map_location):
        return Placed(None, map_location)
    raise ArgumentError(
        f"map_location is a device, its name, a dictionary of them or a function; got {type(map_location).__name__}"
    )


def _device(value: Any) -> torch.device:
    try:
        device = torch.device(value)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            f"map_location={value!r} is not a device of this machine: {reason}. Load with map_location='cpu'"
        ) from None
    return device
