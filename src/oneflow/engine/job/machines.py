"""The machines of a session: as ``flow.config.machine`` lists them, or as the launcher that started the process
says."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from oneflow.engine.core.errors import ArgumentError, WorkerError
from oneflow.engine.core.placement import Placement
from oneflow.engine.world import role

if TYPE_CHECKING:
    from oneflow.engine.runtime.launch.launchers import Launched
    from oneflow.engine.runtime.launch.world import World

HANDLER = "oneflow.engine.runtime.driver.handler:RankHandler"


class Machines:
    """``addresses`` in order, of which the first drives; empty for this machine alone."""

    def __init__(self) -> None:
        self.addresses: tuple[str, ...] = ()
        self.ctrl_port = 0

    @cached_property
    def launched(self) -> Launched | None:
        """What torchrun, SLURM or the like say of this process, if one of them started it beside others."""
        if "RANK" not in os.environ and "SLURM_PROCID" not in os.environ:
            return None
        from oneflow.engine.runtime.launch.launchers import launched

        return launched()

    @property
    def count(self) -> int:
        if self.launched is not None:
            return self.launched.size // self.launched.local_size
        return max(1, len(self.addresses))

    @property
    def here(self) -> int:
        """This machine's place among them."""
        if self.launched is not None:
            return self.launched.machine
        if self.count == 1:
            return 0
        from oneflow.engine.runtime.launch.agent import find_here

        return find_here(self.addresses)

    def devices(self, configured: int | None) -> int | None:
        """The devices of each machine: as many as a launcher started processes, else as configured."""
        if self.launched is None:
            return configured
        here = self.launched.local_size
        if configured is not None and configured != here:
            raise ArgumentError(
                f"{configured} devices are configured and the launcher started {here} processes on each machine; make "
                f"them the same"
            )
        return here

    def serve_and_exit_unless_first(self, devices: Placement) -> None:
        """Returns on the machine that drives the run. On any other machine, serves until the run ends and exits.

        Raises:
            SystemExit: on every machine but the first, with status 1 if the run failed.
        """
        try:
            if not self._serve(devices):
                return
        except WorkerError as error:
            print(f"oneflow: {error}", file=sys.stderr)
            sys.exit(1)
        sys.exit(0)

    def _serve(self, devices: Placement) -> bool:
        if self.launched is not None:
            role.take(role.DRIVEN)
            if self.launched.is_driver:
                return False
            from oneflow.engine.runtime.launch.launchers import serve_rank

            serve_rank(self.launched, self.launched.world(_device_type(devices.device_type)), HANDLER)
            return True
        if self.count == 1:
            return False
        from oneflow.engine.runtime.launch.agent import serve

        here = self.here
        if here:
            serve(self._world(devices.device_type, devices.size // self.count, here), HANDLER)
        return bool(here)

    def world(self, placements: list[tuple[Placement, str]], default: Placement, is_configured: bool) -> World:
        """Every device of the run. Where none was configured, placements may name any of this machine."""
        count = default.size // self.count
        is_fixed = is_configured or self.count > 1 or self.launched is not None
        for placement, line in placements:
            machine, device = (max(numbers) for numbers in zip(*placement.devices))
            if machine >= self.count or (is_fixed and device >= count):
                have = f"{self.count} machine{'s' if self.count > 1 else ''} with {count} device{'s' if count > 1 else ''} each"
                raise ArgumentError(
                    f"{line}: placement {placement} names {machine}:{device}; {have} are configured. Raise "
                    f"flow.config.{default.device_type}_device_num"
                    " or name more machines with flow.env.machine, or choose another placement"
                )
            count = max(count, device + 1)
        if self.launched is not None:
            return self.launched.world(_device_type(default.device_type))
        asks_for_gpu = self.count == 1 and any(placement.device_type == "gpu" for placement, _ in placements)
        return self._world("gpu" if asks_for_gpu else default.device_type, count, 0)

    def _world(self, device_type: str, count: int, here: int) -> World:
        from oneflow.engine.runtime.launch.world import LOOPBACK, World

        return World(_device_type(device_type), self.addresses or (LOOPBACK,), count, here, self.ctrl_port)


def _device_type(asked: str) -> str:
    """Where there is no GPU, as many CPU workers stand for them."""
    return asked if torch.cuda.is_available() else "cpu"
