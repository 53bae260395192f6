"""The heap grows by pages as large as the kernel has, where it gives them on request, and where nobody has told the
allocator otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oneflow.engine.runtime.rank import memory

PROGRAM = """
import ctypes, importlib.util, sys, types
ops = sys.modules["oneflow.engine.ops"] = types.ModuleType("oneflow.engine.ops")
ops.native = types.SimpleNamespace(heap=None)  # as where the extension was not built
spec = importlib.util.spec_from_file_location("memory", sys.argv[1])  # alone: torch has a heap of its own size
memory = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory)
library = ctypes.CDLL(None)
library.sbrk.restype = library.malloc.restype = ctypes.c_void_p
memory.keep_freed_memory()
before = library.sbrk(0)
memory.grow_in_huge_pages(64 << 20)
grown = library.sbrk(0) - before
block = library.malloc(8 << 20)
flags = ""
for line in open("/proc/self/smaps"):
    first, _, last = line.split()[0].partition("-")
    if last and not line.startswith("VmFlags"):
        is_there = int(first, 16) <= block + (4 << 20) < int(last, 16)
    elif line.startswith("VmFlags:") and is_there:
        flags = line.split()
memory.grow_in_huge_pages(64 << 20)
print(grown >> 20, "hg" in flags, library.sbrk(0) - before == grown)
"""


def outcome(**environment: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, memory.__file__], capture_output=True, text=True, check=True, env=environment
    )
    return ran.stdout.split()


@pytest.mark.skipif(not memory._gives_huge_pages(), reason="the kernel gives no huge pages on request here")
def test_the_heap_grows_once_and_what_lies_there_is_to_have_huge_pages():
    grown, is_asked_for, stays = outcome()
    assert int(grown) >= 64 and is_asked_for == "True" and stays == "True"


def test_what_the_environment_tells_the_allocator_stands():
    assert outcome(MALLOC_TOP_PAD_="0")[0] == "0"
