"""Ranks without a driver (SPMD): every process runs the same program, compiles its own rank's part, and gets what one
device gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from nets import ONE, Run, begin, data, define, variables
from processes import are_gone
from spmd_rank import JOBS, STEPS, clipped, net

PROGRAM = Path(__file__).with_name("spmd_rank.py")


@pytest.fixture(scope="module")
def ranks() -> Iterator[list[Any]]:
    """What each of two processes printed; their hashes have different seeds."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    started = []
    for rank in range(2):
        own = {**variables, "PYTHONHASHSEED": str(rank + 1)}
        command = [sys.executable, str(PROGRAM), str(store.port), str(rank)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own, text=True))
    try:
        ended = [process.communicate(timeout=120) for process in started]
        assert [process.returncode for process in started] == [0, 0], ended
    finally:
        for process in started:
            process.kill()
            process.communicate()
    assert are_gone([process.pid for process in started])
    yield [json.loads(out) for out, _ in ended]


@pytest.fixture(scope="module")
def alone() -> Run:
    begin(1)
    job = define(net, ONE, clipped)
    losses = np.stack([job(*data(ONE.batch, step % 3)) for step in range(STEPS)])
    return Run(losses, variables())


def test_no_part_of_a_driven_run_is_loaded(ranks: list[Any]) -> None:
    assert [rank["loaded"] for rank in ranks] == [[], []]


@pytest.mark.parametrize("job", JOBS)
def test_every_process_compiles_the_same_programs(ranks: list[Any], job: str) -> None:
    first, second = (rank["jobs"][job] for rank in ranks)
    assert first["digests"] == second["digests"] and len(set(first["digests"])) == 2
    assert first["groups"] == second["groups"] == [[0, 1]]


@pytest.mark.parametrize("job", JOBS)
def test_the_losses_are_those_of_one_device(ranks: list[Any], alone: Run, job: str) -> None:
    parts = [np.array(rank["jobs"][job]["losses"]) for rank in ranks]
    assert [part.shape for part in parts] == [(STEPS, ONE.batch // 2)] * 2
    np.testing.assert_allclose(np.concatenate(parts, axis=1), alone.losses, rtol=1e-5, atol=1e-5)
    assert alone.losses[-2:].mean() < alone.losses[:2].mean()


@pytest.mark.parametrize("job", JOBS)
def test_the_variables_are_those_of_one_device(ranks: list[Any], alone: Run, job: str) -> None:
    split = set()
    for name, expected in alone.variables.items():
        if name.startswith("System-"):  # a counter, which the clock has
            continue
        first, second = (np.array(rank["jobs"][job]["variables"][name]) for rank in ranks)
        if first.shape == expected.shape:
            np.testing.assert_array_equal(first, second, err_msg=name)
        else:
            split.add(name)
            first = np.concatenate([first, second])
        np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5, err_msg=name)
    weights = {name for name in split if not name.endswith("-momentum")}
    assert bool(split) is (job != "whole variables") and bool(weights) is (job == "split variables")
