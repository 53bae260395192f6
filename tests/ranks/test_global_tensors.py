"""Global tensors on real ranks are what their logical tensors are in one process: values, gradients, writes, random
numbers, training.

The laws stand in ``global_values``, ``global_ops``, ``global_programs`` and ``random_programs``; all are run once by
two ranks and once by four.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import global_ops
import global_programs
import global_values
import pytest
import random_programs
from warm_ranks import said, started

PROGRAM = Path(__file__).with_name("global_rank.py")
MODULES = {
    "global_values": global_values,
    "global_ops": global_ops,
    "global_programs": global_programs,
    "random_programs": random_programs,
}
LAWS = [law for found in MODULES.values() for law in vars(found) if law.startswith("law_")]


APART = """
import os
import oneflow as flow
from oneflow.engine.core.errors import OrderError

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
from oneflow.engine.core.errors import PeerError

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


@lru_cache(maxsize=None)
def kept(size: int, *modules: str, timeout: float = 840) -> list[dict[str, Any]]:
    """What each rank says of each law of these modules, which one world of ranks runs."""
    return [json.loads(out.splitlines()[-1]) for out in said(started(size, str(PROGRAM), ",".join(modules)), timeout)]


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first of each size runs all of them
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("law", LAWS)
def test_a_law_holds_on_every_rank(law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, *MODULES)) if said is not None]
    assert not wrong, wrong[0]


def test_ranks_that_change_different_layouts_are_told_so() -> None:
    for text in said(started(2, "-c", APART)):
        assert "different operations: rank 0 calls gather_parts" in text and "rank 1 calls exchange_parts" in text


def test_a_rank_that_has_ended_is_named() -> None:
    first, _ = said(started(2, "-c", GONE))
    assert "rank 1" in first and "has ended" in first
