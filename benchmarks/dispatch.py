"""How long a call of the smallest job takes, from numpy to numpy, and how long ``import oneflow`` takes beside ``import torch``.

``python benchmarks/dispatch.py``
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import numpy as np
from measure import alternate, machine

import oneflow as flow


@flow.global_function()
def affine(x=flow.FixedTensorDef((4,))):
    return x * 2 + 1


def import_seconds(package: str) -> float:
    """The time of ``import package`` in a fresh interpreter, the start of the interpreter itself left out."""
    code = f"import time; t = time.perf_counter(); import {package}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    print(machine())
    x = np.arange(4, dtype=np.float32)
    start = time.perf_counter()
    affine(x).get()
    print(f"\nfirst call (trace and compile): {time.perf_counter() - start:.2f} s")
    call = alternate({"job": lambda: affine(x).get()}, 2000, 7)[0]
    print(f"y = x * 2 + 1 on 4 floats, call to result: {1e6 * call.median:.1f} us ({1e6 * call.low:.1f} to {1e6 * call.high:.1f})")
    pairs = [(import_seconds("torch"), import_seconds("oneflow")) for _ in range(5)]
    torch_time, oneflow_time = (statistics.median(p) for p in zip(*pairs))
    print(f"import torch {torch_time:.2f} s, import oneflow {oneflow_time:.2f} s, ratio {oneflow_time / torch_time:.2f}")


if __name__ == "__main__":
    main()
