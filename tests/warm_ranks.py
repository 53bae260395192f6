"""Programs on several ranks, as a launcher starts them, in interpreters that have torch loaded already."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from warm_python import WARM


def started(size: int, *program: str, folder: str | Path | None = None, **more: str) -> list[subprocess.Popen[str]]:
    """A process for each rank, in a folder, with these variables more."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"OMP_NUM_THREADS": 1, "ONEFLOW_STEP_TIMEOUT": 60, "PYTHONPATH": os.pathsep.join(sys.path), **more}
    variables = [
        {**os.environ, **{k: str(v) for k, v in {**common, "RANK": rank, "LOCAL_RANK": rank}.items()}}
        for rank in range(size)
    ]
    command = [*WARM.command(), *program]
    return [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own, cwd=folder)
        for own in variables
    ]


def said(processes: list[subprocess.Popen[str]], timeout: float = 480) -> list[str]:
    """What each rank has printed; all must end well."""
    try:
        ended = [process.communicate(timeout=timeout) for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes), ended
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [out for out, _ in ended]
