"""Where loaded tensors go: what ``map_location`` may be, as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from oneflow.core.errors import ArgumentError


@dataclass(frozen=True)
class Placed:
    """Brings a tensor from the CPU to its place. ``for_torch`` says the same to ``torch.load``."""

    for_torch: Any

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if not callable(self.for_torch):
            return tensor.to(self.for_torch)
        storage = self.for_torch(tensor.untyped_storage(), "cpu")
        if storage is None:
            return tensor
        return torch.empty(0, dtype=tensor.dtype, device=storage.device).set_(storage, 0, tensor.shape, tensor.stride())


def placed(map_location: Any) -> Placed:
    """Reads the argument: None (the CPU), a device or its name, a dictionary of such by name, or a function of a storage and its place."""
    if map_location is None:
        return Placed(torch.device("cpu"))
    if isinstance(map_location, (str, torch.device)):
        return Placed(_device(map_location))
    if isinstance(map_location, Mapping):
        return Placed(_by_name({str(name): _device(value) for name, value in map_location.items()}))
    if callable(map_location):
        return Placed(map_location)
    raise ArgumentError(f"map_location is a device, its name, a dictionary of them or a function; got {type(map_location).__name__}")


def _by_name(devices: Mapping[str, torch.device]) -> Callable[[Any, str], Any]:
    def storage_at(storage: Any, location: str) -> Any:
        device = devices.get(location, torch.device("cpu"))
        return storage if device.type == "cpu" else storage.to(device=device)

    return storage_at


def _device(value: Any) -> torch.device:
    try:
        device = torch.device(value)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(f"map_location={value!r} is not a device of this machine: {reason}. Load with map_location='cpu'") from None
    return device
