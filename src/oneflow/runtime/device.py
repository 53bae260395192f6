"""From a placement to a torch device."""

from __future__ import annotations

import sys

import torch

from oneflow.core.errors import UnsupportedError
from oneflow.core.placement import Placement, parse_placement


class Devices:
    """The devices of this machine as jobs see them. Says once, on stderr, when a GPU placement runs on the CPU."""

    def __init__(self) -> None:
        self._told = False

    def default_placement(self, gpu_num: int | None, cpu_num: int | None) -> Placement:
        """All configured devices; one GPU where there is one, else the CPU, when nothing was configured."""
        if gpu_num is None and cpu_num is None:
            return parse_placement("gpu" if torch.cuda.is_available() else "cpu", "0:0")
        tag, count = ("gpu", gpu_num) if gpu_num else ("cpu", cpu_num or 1)
        return parse_placement(tag, f"0:0-{count - 1}")

    def resolve(self, placement: Placement) -> torch.device:
        """The torch device of a placement of one device."""
        if placement.size != 1 or placement.devices[0][0] != 0:
            raise UnsupportedError(
                f"placement {placement} spans {placement.size} devices; this version runs a job on one device of this machine. "
                "Use gpu_device_num(1) and a placement such as ('gpu', '0:0')"
            )
        if placement.device_type == "cpu":
            return torch.device("cpu")
        if torch.cuda.is_available():  # never run where the tests run: no GPU there
            return self._cuda(placement)
        if not self._told:
            print(f"oneflow: no GPU on this machine; placement {placement} runs on the CPU", file=sys.stderr)
            self._told = True
        return torch.device("cpu")

    def _cuda(self, placement: Placement) -> torch.device:
        index = placement.devices[0][1]
        if index >= torch.cuda.device_count():
            raise UnsupportedError(f"placement {placement} names GPU {index}; this machine has {torch.cuda.device_count()}, counted from 0")
        return torch.device("cuda", index)
