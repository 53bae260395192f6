"""Loader: threads work ahead, and end."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from loader_records import LABEL
from warm_python import WARM

import oneflow
from oneflow.data import Loader


def working() -> int:
    return sum(thread.name.startswith("oneflow-loader") for thread in threading.enumerate())


def test_threads_work_ahead_and_end(folder):
    started = threading.Barrier(3, timeout=20)

    def sample(item, draws):
        if item < 2:
            started.wait()  # both must be read at once, and before anyone asks
        return np.int64(item)

    loader = Loader(list(range(20)), 2, sample, threads=2)
    loader.start()
    started.wait()
    assert working() == 2
    assert next(iter(loader)).tolist() == [0, 1]
    loader.close()
    assert working() == 0
    assert next(iter(loader)).tolist() == [2, 3]  # it can go on
    loader.close()


def test_only_so_much_is_read_ahead():
    read = []

    def sample(item, draws):
        read.append(item)
        return np.int64(item)

    with Loader(list(range(100)), 4, sample, prefetch=2) as loader:
        next(iter(loader))
    assert len(read) <= 4 * 4


def test_a_forgotten_loader_leaves_no_thread(folder):
    loader = Loader(folder, 2, LABEL)
    next(iter(loader))
    del loader
    gc.collect()
    ends = time.monotonic() + 10
    while working() and time.monotonic() < ends:
        time.sleep(0.01)
    assert working() == 0


SLEEPER = """
import time
import numpy as np
from oneflow.data import Loader

def sample(item, draws):
    time.sleep(0.2)
    return np.int64(item)

loader = Loader(list(range(1000)), 64, sample, threads=2, prefetch=8)
loader.start()
{then}
print(time.time(), flush=True)
"""


@pytest.mark.quiet
@pytest.mark.parametrize(
    "then", ["", "held = iter(loader)", "loader.close(); loader.start()", "time.sleep(0.3); del loader"]
)
def test_a_program_ends_without_the_batches_in_work(then):
    environment = os.environ | {"PYTHONPATH": str(Path(oneflow.__file__).parents[1])}
    program = [*WARM.command(), "-c", SLEEPER.format(then=then)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.time() - float(done.stdout) < 10  # 576 samples of 0.2 s by two threads are a minute


def test_closing_waits_only_for_the_samples_begun():
    begun, go_on, read = threading.Event(), threading.Event(), []

    def sample(item, draws):
        begun.set()
        go_on.wait(20)
        read.append(item)
        return np.int64(item)

    loader = Loader(list(range(100)), 50, sample, threads=1)
    loader.start()
    begun.wait(20)
    closing = threading.Thread(target=loader.close)
    closing.start()
    while not loader._ahead[0].stopping.is_set():
        time.sleep(0.01)
    go_on.set()
    closing.join(20)
    assert read == [0]
    assert working() == 0
