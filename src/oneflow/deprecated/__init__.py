"""``flow.deprecated``: spellings of 2019. Starting workers by hand is not needed, so these do nothing."""

from __future__ import annotations

from oneflow.compat.absent import absent
from oneflow.scope import namespace as variable_scope

__all__ = [
    "delete_worker",
    "delete_worker_by_bootstrap",
    "delete_worker_of_multi_process",
    "init_worker",
    "variable_scope",
]


def init_worker(scp_binary: bool = True, use_uuid: bool = True, ssh_port: int = 22) -> None:
    """Does nothing: a program starts its own workers."""


def delete_worker(ssh_port: int = 22) -> None:
    """Does nothing: workers end with their program."""


delete_worker_by_bootstrap = delete_worker


def delete_worker_of_multi_process(run_dir: str) -> None:
    """Does nothing: workers end with their program."""


_ABSENT = {"nn": "the module class of early 2020 made ops of C++ kernels; flow.nn.Module is the module of tensors"}
__getattr__ = absent("oneflow.deprecated", _ABSENT, lambda: globals())
