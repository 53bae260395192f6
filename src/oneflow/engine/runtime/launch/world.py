"""The topology of a run, who takes part in it: machines, their devices, and the rank of each device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from oneflow.engine.core.errors import ArgumentError

LOOPBACK = "127.0.0.1"
_DEVICE_TYPES = ("cpu", "gpu")


@dataclass(frozen=True)
class World:
    """Every device of a run, one rank each, machine by machine: rank = machine * devices_per_machine + device.

    ``machines`` are addresses that the other machines can reach; the first one drives. ``here`` is the machine this
    process runs on. ``ctrl_port`` is where the driver listens for the other machines; on one machine it listens on the
    loopback, on any free port.
    """

    device_type: str
    machines: tuple[str, ...] = (LOOPBACK,)
    devices_per_machine: int = 1
    here: int = 0
    ctrl_port: int = 0

    def __post_init__(self) -> None:
        if self.device_type not in _DEVICE_TYPES:
            raise ArgumentError(f"device type {self.device_type!r}; use one of {', '.join(map(repr, _DEVICE_TYPES))}")
        if not self.machines or len(set(self.machines)) != len(self.machines):
            raise ArgumentError(f"machines {list(self.machines)}; name at least one, and each once")
        if self.devices_per_machine < 1:
            raise ArgumentError(f"{self.devices_per_machine} devices on a machine; at least 1 is needed")
        if not 0 <= self.here < len(self.machines):
            raise ArgumentError(f"this is machine {self.here} of {len(self.machines)}; machines are counted from 0")
        if not 0 <= self.ctrl_port < 2**16:
            raise ArgumentError(f"control port {self.ctrl_port}; use a number from 1 to {2**16 - 1}")

    @property
    def size(self) -> int:
        return len(self.machines) * self.devices_per_machine

    def rank_of(self, machine: int, device: int) -> int:
        return machine * self.devices_per_machine + device

    def machine_of(self, rank: int) -> int:
        return rank // self.devices_per_machine

    def device_of(self, rank: int) -> int:
        """The number of the rank's device on its own machine."""
        return rank % self.devices_per_machine

    def ranks_of(self, machine: int) -> range:
        return range(self.rank_of(machine, 0), self.rank_of(machine + 1, 0))

    @property
    def layout(self) -> tuple[str, tuple[str, ...], int]:
        """What must be the same in every process of a run."""
        return self.device_type, self.machines, self.devices_per_machine


@dataclass(frozen=True)
class Context:
    """What a worker's handler is told about the worker it serves in."""

    rank: int
    world: World
    device: torch.device
    host: str
