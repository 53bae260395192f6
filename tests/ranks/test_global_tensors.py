"""Global tensors on real ranks are what their logical tensors are in one process: values, gradients, writes, random numbers, training.

The laws stand in ``global_values``, ``global_ops`` and ``global_programs``; each module is run once by two ranks and once by four.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import global_ops
import global_programs
import global_values
import pytest
from warm_python import WARM

PROGRAM = Path(__file__).with_name("global_rank.py")
MODULES = {"global_values": global_values, "global_ops": global_ops, "global_programs": global_programs}
LAWS = [(module, law) for module, found in MODULES.items() for law in vars(found) if law.startswith("law_")]


def started(size: int, module: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"OMP_NUM_THREADS": 1, "ONEFLOW_STEP_TIMEOUT": 60, "PYTHONPATH": os.pathsep.join(sys.path)}
    variables = [{**os.environ, **{k: str(v) for k, v in {**common, "RANK": rank, "LOCAL_RANK": rank}.items()}} for rank in range(size)]
    command = [*WARM.command(), str(PROGRAM), module]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own) for own in variables]


@lru_cache(maxsize=None)
def kept(size: int, module: str) -> list[dict[str, Any]]:
    """What each rank says of each law."""
    processes = started(size, module)
    try:
        ended = [process.communicate(timeout=240) for process in processes]
        assert [process.returncode for process in processes] == [0] * size, ended
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("module", "law"), LAWS, ids=[law for _, law in LAWS])
def test_a_law_holds_on_every_rank(module: str, law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, module)) if said is not None]
    assert not wrong, wrong[0]
