"""The machines of a session, as ``flow.config.machine`` and the environment say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oneflow.core.errors import ArgumentError
from oneflow.core.placement import Placement

if TYPE_CHECKING:
    from oneflow.runtime.world import World


class Machines:
    """Addresses in order: the first drives. Empty for this machine alone."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.ctrl_port = 0

    @property
    def count(self) -> int:
        return max(1, len(self.addresses))

    def serve_unless_first(self, default: Placement) -> None:
        """Does nothing on the first machine."""

    def world(self, placements: list[tuple[Placement, str]], default: Placement, is_configured: bool) -> World:
        """Every configured device. Where none was configured, placements may name any of this machine."""
        from oneflow.runtime.world import LOOPBACK, World

        count = default.size // self.count
        for placement, line in placements:
            machine, device = (max(numbers) for numbers in zip(*placement.devices))
            if machine >= self.count or (is_configured and device >= count):
                have = f"{self.count} machine{'s' if self.count > 1 else ''} with {count} device{'s' if count > 1 else ''} each"
                raise ArgumentError(
                    f"{line}: placement {placement} names {machine}:{device}; {have} are configured. Raise flow.config.{default.device_type}_device_num"
                    " or flow.config.machine, or choose another placement"
                )
            count = max(count, device + 1)
        kind = "gpu" if any(placement.device_type == "gpu" for placement, _ in placements) else "cpu"
        return World(kind, self.addresses or (LOOPBACK,), count, 0, self.ctrl_port)
