"""Large tensors have a heap of their own: it reaches as far as what is there at once, keeps numbers apart, and is the
same torch for whoever asks."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import torch
from warm_python import WARM

from oneflow.engine.ops import native

pytestmark = pytest.mark.skipif(native.heap is None, reason="the C extension is not built")
MEGABYTE = 2**20

HEAP = """
import json, os, random, threading
import torch
from oneflow.engine.ops.native import heap
from oneflow.engine.runtime import memory
memory.keep_freed_memory()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def megabytes(count):
    return torch.ones(int(count * 2**18))
"""
STEPS = """
kept = []
def step():  # layers of several sizes, kept until the way back, with small objects that stay between them
    sizes = [12, 3, 3, 12, 6, 1.5, 1.5, 6, 3]
    held = []
    for size in sizes:
        held.append(megabytes(size))
        kept.append(torch.ones(8))
    gradient = megabytes(3)
    for size in reversed(sizes):
        held.pop()
        gradient = megabytes(size)
reached = []
for _ in range(20):
    step()
    reached.append(heap.sizes())
print(json.dumps(reached))
"""
HOLES = """
a, b, c, d = (megabytes(1) for _ in range(4))
at = b.data_ptr()
del b, c
both = megabytes(2)
print(json.dumps([both.data_ptr() == at, heap.sizes()[1]]))
"""
THREADS = """
def work(seed):
    draw, held = random.Random(seed), []
    for _ in range(1500):
        if len(held) > 12:
            one, number = held.pop(draw.randrange(len(held)))
            assert one[0] == one[-1] == number and one.data_ptr() % 64 == 0
        one = torch.empty(draw.randrange(60_000, 400_000))
        one[0] = one[-1] = number = float(draw.randrange(1000))
        held.append((one, number))
    done.append(seed)
done = []
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
[one.start() for one in threads]
children = []
for _ in range(5):  # while others take and leave memory
    child = os.fork()
    if not child:
        os._exit(torch.empty(2**19).data_ptr() % 64)
    children.append(os.waitpid(child, 0)[1])
[one.join() for one in threads]
print(json.dumps([sorted(done), children, heap.sizes()[0]]))
"""
GIVEN_BACK = """
first, big = megabytes(1), megabytes(256)
last = megabytes(1)
before = resident()
del big
kept = resident()
memory.give_back()
given = resident()
print(json.dumps([before - kept, before - given, float(first.sum() + last.sum()), float(megabytes(256).sum())]))
"""
TORCH = """
from torch.profiler import profile
with profile(profile_memory=True) as seen:
    x = megabytes(4)
    grown = x.clone().resize_(2**21)
message = ""
try:
    torch.empty(2**50)
except RuntimeError as error:
    message = str(error)
told = {event.key: event.self_cpu_memory_usage for event in seen.key_averages()}
print(json.dumps([told["aten::empty"], bool((grown[: 2**20] == 1).all()), message]))
"""
OTHERWISE = "print(json.dumps([memory.has_own_heap(), heap.sizes()]))"


def outcome(program: str, **variables: str) -> list:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    ran = subprocess.run(
        [*WARM.command(), "-c", HEAP + program],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def test_steps_reach_as_far_as_what_they_hold_at_once_and_no_further():
    reached = outcome(STEPS)
    at_once = 48 + 3 + 3  # what is held, the gradient, and the next one
    assert all(taken == 0 and extent <= (at_once + 1) * MEGABYTE for taken, extent in reached)
    assert reached[-1] == reached[0]


def test_holes_side_by_side_are_one():
    is_there, extent = outcome(HOLES)
    assert is_there and extent < 4.1 * MEGABYTE


def test_threads_and_forked_processes_have_memory_of_their_own():
    assert outcome(THREADS) == [[0, 1, 2, 3], [0] * 5, 0]


def test_what_is_freed_is_kept_until_it_is_given_back():
    kept, given, ends, again = outcome(GIVEN_BACK)
    assert abs(kept) < 8 * MEGABYTE and given > 240 * MEGABYTE
    assert (ends, again) == (2 * 2**18, 256 * 2**18)


def test_torch_profiles_resizes_and_refuses_as_it_does_without():
    seen, is_kept, message = outcome(TORCH)
    assert seen >= 4 * MEGABYTE and is_kept and "can't allocate memory" in message


def test_what_the_environment_tells_the_allocator_stands():
    assert outcome(OTHERWISE, MALLOC_ARENA_MAX="2") == [False, [0, 0]]


def test_small_tensors_are_left_to_the_c_library():
    before = native.heap.sizes()[0]
    held = [torch.ones(100) for _ in range(100)]
    assert native.heap.sizes()[0] == before and held
