"""Runs whose processes somebody else starts, one per rank: torchrun, SLURM, or a script that sets RANK and WORLD_SIZE.

Rank 0's process drives, and starts a worker for its own device. The process of every other rank is the worker of that
rank.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import secrets
import socket
import stat
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from oneflow.engine.core.errors import ArgumentError, WorkerError
from oneflow.engine.runtime.driver.worker import Seat, run_worker
from oneflow.engine.runtime.launch.addresses import resolve
from oneflow.engine.runtime.launch.limits import connect_seconds, given_secret, share_of_threads
from oneflow.engine.runtime.launch.rendezvous import Address
from oneflow.engine.runtime.launch.world import LOOPBACK, World

_SLURM_PORTS = range(20000, 30000)
_SLURM_STEP = (
    "SLURM_STEP_NODELIST",
    "SLURM_LAUNCH_NODE_IPADDR",
    "MASTER_ADDR",
)  # by any of these a task finds the first one


@dataclass(frozen=True)
class Launched:
    """What the launcher says of this process. ``store_key``: where the driver tells its port if the launcher listens on
    ``port``."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    machines: tuple[str, ...] = ()
    store_key: str | None = None

    def __post_init__(self) -> None:
        if (
            not 0 <= self.rank < self.size
            or self.size % self.local_size
            or self.rank % self.local_size != self.local_rank
        ):
            raise ArgumentError(
                f"the launcher says rank {self.rank} of {self.size}, local rank {self.local_rank} of "
                f"{self.local_size}; "
                "every machine must have as many processes as the others, with consecutive ranks (SLURM: "
                "--distribution=block)"
            )

    @property
    def is_driver(self) -> bool:
        return self.rank == 0

    @property
    def machine(self) -> int:
        """The place of this process's machine among those of the run."""
        return self.rank // self.local_size

    @property
    def is_local(self) -> bool:
        """Whether all processes are on this machine."""
        return self.local_size == self.size

    def world(self, device_type: str) -> World:
        """The world of the launched processes. Machines whose address nobody tells are named by their number."""
        others = tuple(f"machine-{number}" for number in range(1, self.size // self.local_size))
        return World(device_type, self.machines or (self.address, *others), self.local_size, self.machine, self.port)

    @property
    def listening_place(self) -> tuple[str, int]:
        """Where the driver listens; port 0 is any free one, which ``announced`` then tells."""
        if self.is_local:
            return LOOPBACK, 0
        if all(address.startswith("127.") or address == "::1" for address in resolve(self.address)):
            raise ArgumentError(
                f"MASTER_ADDR {self.address!r} is only known to this machine itself; set it to an address that the "
                f"others can reach"
            )
        return self.address, 0 if self.store_key else self.port

    def new_secret(self) -> bytes:
        """The driver's secret: made for this run on one machine, given by the user for several."""
        return secrets.token_bytes(32) if self.is_local else given_secret()

    @contextlib.contextmanager
    def announced(self, port: int, secret: bytes) -> Iterator[None]:
        """Tells the other ranks the driver's port, and on one machine the secret, as long as the context lasts."""
        if self.is_local:
            with _announced_in_file(_meeting_file(self.port), port, secret):
                yield
            return
        if self.store_key is not None:
            self._store().set(self.store_key, str(port))
        yield

    def find_driver(self) -> Address:
        """Where the driver is; OSError as long as it is not there."""
        if self.is_local:
            return _read_announcement(_meeting_file(self.port))
        port = int(self._store().get(self.store_key)) if self.store_key is not None else self.port
        return Address(self.address, port, given_secret())

    def _store(self) -> dist.TCPStore:
        return dist.TCPStore(self.address, self.port, is_master=False, wait_for_workers=False)


def launched(environment: Mapping[str, str] = os.environ) -> Launched | None:
    """What a launcher has put into the environment; None when this process was not started by one, or alone."""
    found = None
    if "RANK" in environment and "WORLD_SIZE" in environment:
        found = _from_torch(environment)
    elif "SLURM_PROCID" in environment and _is_task_of_srun(environment):
        found = _from_slurm(environment)
    return found if found is not None and found.size > 1 else None


def serve_rank(found: Launched, world: World, handler: str, *, threads: int | None = None) -> None:
    """Serves as the worker of this process's rank, which is not 0: returns when the driver has ended the run; raises if
    it failed or was lost."""
    if not found.is_local:
        given_secret()  # without it no attempt can succeed
    share = share_of_threads(threads, world.devices_per_machine)
    name = f"rank {found.rank} on {socket.gethostname()}"
    seat = Seat(found.rank, world, handler, share, functools.partial(Launched.find_driver, found), connect_seconds())
    trouble = run_worker(seat, farewell=f"{name} lost the driver")
    if trouble is not None:
        raise WorkerError(f"{name}{trouble}")


def _from_torch(environment: Mapping[str, str]) -> Launched:
    """The variables of torchrun and of torch's own ``env://``."""
    rank, size = _number(environment, "RANK"), _number(environment, "WORLD_SIZE", least=1)
    address, port = environment.get("MASTER_ADDR", ""), _number(environment, "MASTER_PORT")
    if not address:
        raise ArgumentError(
            "RANK and WORLD_SIZE are set and MASTER_ADDR is not; set it to the address of rank 0's machine"
        )
    on_loopback = all(found.startswith("127.") or found == "::1" for found in resolve(address))
    local_size = _number(environment, "LOCAL_WORLD_SIZE", size if on_loopback else 1, least=1)
    local_rank = _number(environment, "LOCAL_RANK", rank % local_size)
    key = None
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == str(True):
        key = f"oneflow/driver/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return Launched(rank, size, local_rank, local_size, address, port, store_key=key)


def _from_slurm(environment: Mapping[str, str]) -> Launched:
    rank, size = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_NTASKS", least=1)
    machines = _slurm_machines(environment)
    address = environment.get("MASTER_ADDR") or machines[0]
    count = _number(
        environment, "SLURM_STEP_NUM_NODES", _number(environment, "SLURM_NNODES", len(machines), least=1), least=1
    )
    job = _number(environment, "SLURM_JOB_ID", 0)
    port = _number(environment, "MASTER_PORT", _SLURM_PORTS[job % len(_SLURM_PORTS)])
    names = (address, *machines[1:]) if len(machines) == count else ()
    if size % count:
        raise ArgumentError(
            f"SLURM runs {size} tasks on {count} machines; every machine must have as many tasks as the others "
            f"(--ntasks-per-node)"
        )
    return Launched(rank, size, _number(environment, "SLURM_LOCALID"), size // count, address, port, names)


def _is_task_of_srun(environment: Mapping[str, str]) -> bool:
    """False for a batch script, which is one process whatever SLURM_NTASKS says, and told so. Refuses a task whose step
    says nothing of its machines."""
    if any(environment.get(name) for name in (*_SLURM_STEP, "SLURM_STEP_ID")):
        return True
    number, size = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_NTASKS", 1)
    missing = f"SLURM_PROCID is {number}, SLURM_NTASKS {size} and none of {', '.join(_SLURM_STEP)} is set"
    if number > 0:
        raise ArgumentError(
            f"{missing}, so this task cannot find task 0; start it with srun, or set RANK, WORLD_SIZE, MASTER_ADDR and "
            f"MASTER_PORT"
        )
    if size > 1:
        warnings.warn(
            f"{missing}: this process runs alone, as a batch script does; start one process per task with srun",
            stacklevel=5,
        )
    return False


def _slurm_machines(environment: Mapping[str, str]) -> list[str]:
    """The machines of a step in order; where only those of the allocation are known, these; else the address of the
    first."""
    nodes = next(
        (
            environment[name]
            for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
            if environment.get(name)
        ),
        "",
    )
    address = environment.get("MASTER_ADDR") or environment.get("SLURM_LAUNCH_NODE_IPADDR")
    if not nodes and not address:
        raise ArgumentError(
            f"this is a task of srun, and none of {', '.join(_SLURM_STEP)} tells where task 0 is; set MASTER_ADDR to "
            f"the address of its machine"
        )
    return [str(address)] if address and "SLURM_STEP_NODELIST" not in environment else expand_nodes(nodes)


def expand_nodes(text: str) -> list[str]:
    """Host names of a SLURM node list: ``"a[01-03,7],b"`` -> a01 a02 a03 a7 b."""
    names = []
    for entry in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        before, bracket, rest = entry.partition("[")
        if not bracket:
            names.append(entry)
            continue
        inside, _, after = rest.partition("]")
        names += [
            before + number + tail for number in _numbers(inside) for tail in (expand_nodes(after) if after else [""])
        ]
    return names


def _numbers(ranges: str) -> list[str]:
    found = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(last or first) + 1)]
    return found


def _number(environment: Mapping[str, str], name: str, default: int | None = None, least: int = 0) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()) or int(text) < least:
        found = "not set" if text is None else repr(text)
        raise ArgumentError(
            f"environment variable {name} is {found}; the launcher should set it to a "
            f"number{f' from {least} on' if least else ''}"
        )
    return int(text)


def _meeting_file(port: int) -> Path:
    """Where rank 0 tells the ranks of this machine how to reach it: a file that only this user can read."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(folder, f"oneflow-{os.getuid()}-{port}.json")


@contextlib.contextmanager
def _announced_in_file(path: Path, port: int, secret: bytes) -> Iterator[None]:
    fd, draft = tempfile.mkstemp(prefix=path.name, dir=path.parent)  # readable by this user only
    try:
        with open(fd, "w", encoding="ascii") as file:
            json.dump({"port": port, "secret": secret.hex()}, file)
        os.replace(draft, path)  # whole or not at all; and not through a link that somebody else has put there
    except BaseException:
        os.unlink(draft)
        raise
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _read_announcement(path: Path) -> Address:
    """OSError when there is none, or none that this user alone has written."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, encoding="ascii") as file:
        status = os.fstat(fd)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{path} can be written or read by other users; remove it")
        content = json.load(file)
    return Address(LOOPBACK, content["port"], bytes.fromhex(content["secret"]))
