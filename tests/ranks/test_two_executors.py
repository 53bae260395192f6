"""Every process compiles the same job and runs its own rank's program, in two executors at a time, without any
driver."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys

import numpy as np
import torch.distributed as dist
from warm_python import WARM

HOST = re.escape(socket.gethostname())
BATCH, RATE, STEPS = 256, 0.5, 3
PROGRAM = f"""
import json, os, signal, sys
from datetime import timedelta
import torch
import torch.distributed as dist
import oneflow as flow
from distributed import calls, compiled
from oneflow.engine import collective
from oneflow.engine.program.digest import digest
from oneflow.engine.lowering.groups import process_groups
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.serialize import pack, unpack
from oneflow.engine.core.errors import PeerError
from oneflow.engine.step.executor import Executor, StepNumbers
from oneflow.engine.step.rank_variables import RankVariables

def job(x=flow.FixedTensorDef(({BATCH}, 6))):
    w = flow.get_variable("w", (6, 2), initializer=flow.zeros_initializer())
    loss = flow.math.reduce_mean(flow.matmul(x, w))
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [{RATE}]), momentum=0.0).minimize(loss)
    return loss

port, rank = map(int, sys.argv[1:])
store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
assigned = compiled(job, 2)
programs = [compile_rank(assigned, number) for number in range(2)]
program = unpack(pack(programs[rank], str))
before = digest(program)
collective.make_groups(process_groups(assigned, programs.__getitem__))
weights = [torch.zeros(6, 2), torch.ones(6, 2)]

def executor_of(weight):
    variables = RankVariables(rank, torch.device("cpu"))
    variables.tensors["w"] = weight
    return Executor(program, variables)

executors = [executor_of(weight) for weight in weights]
half = {BATCH} // 2
fed = [torch.arange({BATCH} * 6.0).view({BATCH}, 6)[rank * half : (rank + 1) * half] / scale for scale in (1000, 2000)]
for step in range({STEPS}):
    for executor, x in zip(executors, fed):
        executor.run(StepNumbers(step, ({RATE},), 1.0), [[x]])
is_same = digest(program) == before
names = [node.target.__name__ for node in calls(program)]
print(json.dumps([[weight.tolist() for weight in weights], names, is_same]), flush=True)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    executors[0].run(StepNumbers({STEPS}, ({RATE},), 1.0), [[fed[0]]])
except PeerError as error:
    print(error, flush=True)
    os._exit(3)
"""


def test_two_executors_of_one_program_do_not_disturb_each_other_and_name_a_rank_that_is_gone() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [
        subprocess.Popen(
            [*WARM.command(), "-c", PROGRAM, str(store.port), str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=120) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert ranks[0].returncode == 3, said
    data = np.arange(BATCH * 6.0).reshape(BATCH, 6)
    for out, _ in said:
        found, names, is_same = json.loads(out.splitlines()[0])
        assert is_same and names.count("bucket_start") == 1
        for weight, first, scale in zip(found, (0.0, 1.0), (1000, 2000)):
            gradient = (data / scale).mean(axis=0)[:, None] / 2
            np.testing.assert_allclose(weight, np.full((6, 2), first) - STEPS * RATE * gradient, rtol=1e-5)
    error = said[0][0].splitlines()[1]
    assert re.search(
        rf"job 'job' failed at step {STEPS} in .*: rank 0 on {HOST} waited in vain for rank 1 on {HOST}: rank 1 on {HOST} has ended",
        error,
    ), error
