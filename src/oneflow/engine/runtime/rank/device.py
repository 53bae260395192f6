"""From placements to devices: what the configured machines have, and on what each job runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.core.placement import Placement


class Devices:
    """The devices of this machine as jobs see them. Says once, on stderr, when GPU placements run on the CPU."""

    def __init__(self) -> None:
        self._told = False

    def default(self, gpu_num: int | None, cpu_num: int | None) -> tuple[str, int | None]:
        """The device type and the number of devices of each machine that were configured: GPUs before the CPU. Without
        a number GPUs where there are any."""
        if gpu_num:
            return "gpu", gpu_num
        if gpu_num is not None or cpu_num is not None:
            return "cpu", cpu_num or 1
        return "gpu" if torch.cuda.is_available() else "cpu", None

    def resolve(self, placements: Iterable[Placement], workers: int = 1) -> torch.device:
        """The torch device of ops on these placements: a GPU if one of them asks for it and there is one. On a GPU each
        worker has its own, so it has no number where there are several."""
        asked = [placement for placement in placements if placement.device_type == "gpu"]
        if not asked:
            return torch.device("cpu")
        if torch.cuda.is_available():  # never run where the tests run: no GPU there
            return self._cuda(asked[0], workers)
        if not self._told:
            where = f"{workers} CPU workers" if workers > 1 else "the CPU"
            whole = Placement("gpu", tuple(sorted({device for placement in asked for device in placement.devices})))
            print(f"oneflow: no GPU on this machine; placement {whole} runs on {where}", file=sys.stderr)
            self._told = True
        return torch.device("cpu")

    def _cuda(self, placement: Placement, workers: int) -> torch.device:
        index = max(device for _, device in placement.devices)
        if index >= torch.cuda.device_count():
            raise UnsupportedError(
                f"placement {placement} names GPU {index}; this machine has {torch.cuda.device_count()}, counted from 0"
            )
        return torch.device("cuda") if workers > 1 else torch.device("cuda", index)
