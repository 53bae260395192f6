"""Global tensors on real ranks are what their logical tensors are in one process: values, gradients, writes, random numbers, training.

The laws stand in ``global_values``, ``global_ops``, ``global_programs`` and ``random_programs``; each module is run once by two ranks and once by four.
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
import random_programs
from warm_python import WARM

PROGRAM = Path(__file__).with_name("global_rank.py")
MODULES = {"global_values": global_values, "global_ops": global_ops, "global_programs": global_programs, "random_programs": random_programs}
LAWS = [(module, law) for module, found in MODULES.items() for law in vars(found) if law.startswith("law_")]


APART = """
import os
import oneflow as flow
from oneflow.core.errors import OrderError

rank, place = int(os.environ["RANK"]), flow.placement.all("cpu")
x = flow.ones(4, 2, placement=place, sbp=flow.sbp.split(0))
try:
    x.numpy() if rank == 0 else x.to_global(sbp=flow.sbp.split(1))
except OrderError as error:
    print(error)
"""
GONE = """
import os
import oneflow as flow
from oneflow.core.errors import PeerError

x = flow.ones(4, 2, placement=flow.placement.all("cpu"), sbp=flow.sbp.split(0))
x.numpy()
if os.environ["RANK"] == "1":
    os._exit(0)
try:
    x.numpy()
except PeerError as error:
    print(error)
os._exit(0)
"""


def started(size: int, *program: str, **more: str) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"OMP_NUM_THREADS": 1, "ONEFLOW_STEP_TIMEOUT": 60, "PYTHONPATH": os.pathsep.join(sys.path), **more}
    variables = [{**os.environ, **{k: str(v) for k, v in {**common, "RANK": rank, "LOCAL_RANK": rank}.items()}} for rank in range(size)]
    command = [*WARM.command(), *program]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own) for own in variables]


@lru_cache(maxsize=None)
def kept(size: int, module: str) -> list[dict[str, Any]]:
    """What each rank says of each law."""
    return [json.loads(out.splitlines()[-1]) for out in said(started(size, str(PROGRAM), module))]


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


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(("module", "law"), LAWS, ids=[law for _, law in LAWS])
def test_a_law_holds_on_every_rank(module: str, law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, module)) if said is not None]
    assert not wrong, wrong[0]


def test_ranks_that_change_different_layouts_are_told_so() -> None:
    for text in said(started(2, "-c", APART)):
        assert "different operations: rank 0 calls gather_parts" in text and "rank 1 calls exchange_parts" in text


def test_a_rank_that_has_ended_is_named() -> None:
    first, _ = said(started(2, "-c", GONE))
    assert "rank 1" in first and "has ended" in first
