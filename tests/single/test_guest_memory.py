"""Jobs and graphs leave torch's CPU allocator and the C library's settings alone."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes
import torch
import numpy as np

allocator = ctypes.CDLL("libc10.so")["_ZN3c1015GetCPUAllocatorEv"]
allocator.restype = ctypes.c_void_p
before = allocator()
import oneflow as flow

@flow.global_function()
def job(x=flow.FixedTensorDef((2,))):
    return flow.math.relu(x)

class Net(flow.nn.Graph):
    def build(self, x):
        return x + 1

job(np.ones(2, np.float32)).get()
Net()(torch.ones(2))
assert allocator() == before
"""


def test_torch_keeps_its_cpu_allocator() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
