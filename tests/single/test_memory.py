"""The memory of a step is there again for the next one: the kernel is not asked for it anew. Garbage is looked for when
there may be some."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import oneflow as flow
from oneflow.engine.runtime.rank import memory

PROGRAM = """
import resource
import statistics
import numpy as np
import oneflow as flow

@flow.global_function()
def job(x=flow.FixedTensorDef((2 << 20,))):
    return flow.math.reduce_sum(flow.math.exp(x) * flow.math.sigmoid(x))

x = np.zeros(2 << 20, np.float32)
counts = []
for _ in range(21):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    job(x).get()
    counts.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(statistics.median(counts))  # the allocator finds its layout in the first steps, and now and then once more
flow.clear_default_session()
"""
PAGES = (8 << 20) // os.sysconf("SC_PAGE_SIZE")  # of one tensor


def faults(**variables: str) -> int:
    """Pages that a usual step asks the kernel for."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**environment, **variables}, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(memory._of_the_library("mallopt") is None, reason="this C library's allocator has no settings")
@pytest.mark.quiet
def test_a_step_asks_the_kernel_for_no_memory() -> None:
    assert faults() < PAGES / 10


@pytest.mark.skipif(memory._of_the_library("mallopt") is None, reason="this C library's allocator has no settings")
@pytest.mark.quiet
def test_what_the_environment_tells_the_allocator_stands() -> None:
    assert faults(MALLOC_MMAP_THRESHOLD_="1048576") > PAGES / 2


def test_a_library_without_settings_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(memory, "_of_the_library", lambda name: None)
    memory.keep_freed_memory.cache_clear()
    memory.keep_freed_memory()
    memory.give_back()
    memory.keep_freed_memory.cache_clear()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_of_garbage_rests_while_a_job_is_traced_and_is_left_as_it_was(is_enabled: bool) -> None:
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        seen.append(gc.isenabled())
        return x

    gc.enable() if is_enabled else gc.disable()
    try:
        job(np.zeros(2, np.float32)).get()
        assert (seen, gc.isenabled()) == ([False], is_enabled)
    finally:
        gc.enable()
