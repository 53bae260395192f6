"""Programs whose processes are peers: each rank a fork of a warm interpreter, with the variables of a launcher."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import NamedTuple

from processes import are_gone
from warm_python import WARM


class Ended(NamedTuple):
    """How a rank ended."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line it has written to stderr."""
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def variables(rank: int, size: int, port: int, **others: str) -> dict[str, str]:
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **own, **others}


def start(
    size: int, program: str, *arguments: str, ranks: range | None = None, **others: str
) -> list[subprocess.Popen]:
    """Starts the ranks of a world, or some of them."""
    port = free_port()
    return [
        subprocess.Popen(
            [*WARM.command(), "-c", program, *arguments],
            env=variables(rank, size, port, **others),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ranks or range(size)
    ]


def ended(processes: list[subprocess.Popen], *, without: tuple[int, ...] = (), seconds: float = 60) -> list[Ended]:
    """How the ranks ended, and nothing is left of them. Those ``without`` are not waited for."""
    try:
        found = []
        for rank, process in enumerate(processes):
            out, err = process.communicate(timeout=seconds) if rank not in without else ("", "")
            found.append(Ended(process.returncode if process.returncode is not None else 0, out, err))
        return found
    finally:
        for process in processes:
            process.kill()
            process.communicate()
        assert are_gone([process.pid for process in processes])


def run(size: int, program: str, *arguments: str, **others: str) -> list[str]:
    """What each rank of a world has printed; every rank must end well, and say nothing on stderr."""
    found = ended(start(size, program, *arguments, **others))
    for rank, (code, _, err) in enumerate(found):
        assert code == 0 and not err, f"rank {rank} ended with {code}:\n{err}"
    return [out for _, out, _ in found]
