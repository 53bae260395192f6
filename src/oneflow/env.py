"""``flow.env``: who this process is among those of its launcher, and the settings of machines that job functions
know."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.global_tensor.placement import placement
from oneflow.engine.job.config import env as _of_jobs
from oneflow.engine.world import current_world

__all__ = [
    "all_device_placement",
    "destory_rdma",
    "get_local_rank",
    "get_node_size",
    "get_rank",
    "get_world_size",
    "init_rdma",
    "rdma_is_initialized",
]


def get_rank() -> int:
    """This process's number among all, counted from 0; 0 without a launcher."""
    return current_world().rank


def get_local_rank() -> int:
    """This process's number among those of its machine, counted from 0."""
    return current_world().local_rank


def get_world_size() -> int:
    """The number of processes; 1 without a launcher."""
    return current_world().size


def get_node_size() -> int:
    """The number of machines."""
    return current_world().node_size


def all_device_placement(type: str) -> placement:
    """The placement of all ranks, on one axis."""
    return placement.all(type)


def init_rdma() -> None:
    """Refused: there is nothing to switch on. NCCL uses InfiniBand by itself where there is some."""
    raise UnsupportedError(
        "flow.env.init_rdma(): leave the call out; between GPUs NCCL uses RDMA by itself where the network has it, "
        "gloo never does"
    )


def rdma_is_initialized() -> bool:
    """False: ``init_rdma`` is refused."""
    return False


def destory_rdma() -> None:
    """Does nothing: there is nothing that ``init_rdma`` could have started. (The name is spelled as it was
    published.)"""


class _Env(ModuleType):
    """This module, with the members that job functions know: ``flow.env.machine(...)``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(_of_jobs, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or name in __all__:
            return super().__setattr__(name, value)
        setattr(_of_jobs, name, value)  # refuses: they are methods

    def __dir__(self) -> list[str]:
        return sorted([*__all__, *dir(_of_jobs)])


sys.modules[__name__].__class__ = _Env
