"""Threads, forks and signals of a program that has workers, and what workers keep."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nets import begin
from rank_jobs import rate, weight
from warm_python import WARM

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.job.function import default_session

SRC = str(Path(flow.__file__).parents[1])


def test_jobs_that_are_first_called_from_several_threads_are_not_taken_for_each_other():
    begin(2)

    def times(factor: float) -> Any:
        def job(x: tp.Numpy.Placeholder((8, 4))) -> tp.Numpy:
            return x * factor

        job.__name__ = f"times_{factor:g}"
        return flow.global_function()(job)

    jobs = {factor: times(factor) for factor in (2.0, 3.0, 5.0)}
    x = np.ones((8, 4), np.float32)
    with ThreadPoolExecutor(len(jobs)) as pool:
        found = {
            factor: pool.submit(lambda job=job: [job(x * k)[0, 0] for k in range(5)]) for factor, job in jobs.items()
        }
    assert {factor: values.result() for factor, values in found.items()} == {
        factor: [factor * k for k in range(5)] for factor in jobs
    }


def test_programs_of_a_job_that_was_defined_again_leave_the_workers():
    begin(2)

    def define() -> int:
        @flow.global_function("train")
        def job(x: tp.Numpy.Placeholder((4, 64))) -> tp.Numpy:
            loss = flow.math.square(flow.matmul(x, weight("w", 64, 64)))
            flow.optimizer.SGD(rate(0.1), momentum=0.0).minimize(loss)
            return loss

        job(np.ones((4, 64), np.float32))
        with open(f"/proc/{default_session().backend.driver.cluster.pids[0]}/maps", encoding="utf-8") as maps:
            return sum("memfd" in line for line in maps)

    define()
    second = define()
    assert [define() for _ in range(3)] == [second] * 3


FORKED = """
import os, sys
import numpy as np
import oneflow as flow

def define(devices):
    flow.config.cpu_device_num(devices)

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 2))):
        return x * 2.0

    return job

job = define(2)
x = np.ones((2, 2), np.float32)
job(x).get()
child = os.fork()
if not child:
    try:
        job(x * 100).get()
    except RuntimeError as error:
        print("child:", error, flush=True)
    flow.clear_default_session()
    print("child:", define(2)(x * 100).get()[0, 0], flush=True)
    flow.clear_default_session()
    sys.exit()
os.waitpid(child, 0)
print("parent:", job(x).get()[0, 0])
"""


def test_a_forked_child_cannot_call_its_parents_workers_and_can_have_its_own():
    done = subprocess.run(
        [*WARM.command(), "-c", FORKED],
        env={**os.environ, "PYTHONPATH": SRC},
        capture_output=True,
        text=True,
        timeout=120,
    )
    refused, own, parents = done.stdout.splitlines()
    assert re.search(
        r"child: process \d+ was forked from \d+, whose workers it cannot call; call flow.clear_default_session\(\)",
        refused,
    )
    assert (own, parents, done.returncode) == ("child: 200.0", "parent: 2.0", 0), done.stderr


INTERRUPTED = """
import os, signal, sys
import numpy as np
import oneflow as flow

flow.config.cpu_device_num(2)

@flow.global_function("train")
def train(x=flow.FixedTensorDef((4, 2))):
    loss = flow.math.square(flow.matmul(x, flow.get_variable("w", (2, 2), initializer=flow.ones_initializer())))
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0]), momentum=0.0).minimize(loss)
    return loss

steps, stop = 0, []
if sys.argv[1] == "SIGTERM":
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
train(np.ones((4, 2), np.float32)).get()
try:
    print("ready", flush=True)
    while not stop:
        train(np.ones((4, 2), np.float32)).get()
        steps += 1
except KeyboardInterrupt:
    pass
flow.checkpoint.save(sys.argv[2])
(taken,) = np.fromfile(sys.argv[2] + "/System-Train-TrainStep-train/out", np.int64)
print(taken - steps in (1, 2))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_program_that_handles_a_signal_of_its_group_can_still_save(name, tmp_path):
    """On Ctrl-C a step that has begun is finished, and counted by the workers and the driver alike."""
    command = [sys.executable, "-c", INTERRUPTED, name, str(tmp_path / "saved")]
    environment = {**os.environ, "PYTHONPATH": SRC}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        os.killpg(program.pid, getattr(signal, name))
        out, err = program.communicate(timeout=60)
    assert (out, err, program.returncode) == ("True\n", "", 0)
