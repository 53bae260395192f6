"""The workers of a run: from the flags of the platform, or from a launcher's variables."""

from __future__ import annotations

import os
from collections.abc import Sequence

import oneflow as flow
from fastnn.errors import FlagError
from fastnn.flags import FLAGS, Flags
from fastnn.utils.dataset_utils import Share

_LAUNCHED = ("RANK", "SLURM_PROCID")


def join_workers(flags: Flags = FLAGS) -> Share:
    """This worker among all. ``--worker_hosts`` and ``--task_index`` count where no launcher has set its variables; for
    the process group they are put into those of torch's ``env://``."""
    if not any(name in os.environ for name in _LAUNCHED) and flags.worker_hosts:
        os.environ |= launcher_variables(flags.worker_hosts.split(","), task_index(flags))
    workers = flow.env.get_world_size()
    if workers > 1 and not flags.enable_paisoar:
        raise FlagError(
            f"there are {workers} workers, and --enable_paisoar=False trains one; leave it out, or start one process"
        )
    return Share(flow.env.get_rank(), workers)


def task_index(flags: Flags = FLAGS) -> int:
    """``--task_index``, or ``--taskId``."""
    return flags.taskId if flags.taskId is not None and not flags.is_given("task_index") else flags.task_index


def launcher_variables(hosts: Sequence[str], index: int) -> dict[str, str]:
    """What a launcher would set for worker ``index`` of ``hosts``, each ``host:port``. Nothing for one alone."""
    hosts = [host.strip() for host in hosts if host.strip()]
    if not 0 <= index < len(hosts):
        raise FlagError(f"--task_index is from 0 to {len(hosts) - 1}, a worker of --worker_hosts; got {index}")
    if len(hosts) == 1:
        return {}
    names = []
    for host in hosts:
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            raise FlagError(f"--worker_hosts has host:port of every worker with commas between them, got {host!r}")
        names.append(name)
    counts = {names.count(name) for name in names}
    if len(counts) > 1 or names != [name for name in dict.fromkeys(names) for _ in range(names.count(name))]:
        raise FlagError(
            f"--worker_hosts has equally many workers of each host, one host behind the other; got {','.join(hosts)}"
        )
    address, _, port = hosts[0].rpartition(":")
    each = counts.pop()
    return {
        "RANK": str(index),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": str(index % each),
        "LOCAL_WORLD_SIZE": str(each),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
