"""User code that runs while a job or a graph is traced gets the real modules of other packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
import torch

@torch.compiler.disable
def uncompiled(x):
    return x
"""

IMPORTS = """
import sys
import threading
import torch
import oneflow as flow
import oneflow.typing as tp

seen = {}

def look():
    from sympy import Basic
    import user_module
    seen["basic"], seen["function"] = Basic, user_module.uncompiled

"""
GRAPH = """
class Net(flow.nn.Graph):
    def build(self, x):
        LOOK
        return x + 1

Net()(torch.ones(2))
"""
JOB = """
import numpy as np

@flow.global_function()
def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
    LOOK
    return flow.math.relu(x)

job(np.ones(2, np.float32))
"""
CHECK = """
import sympy
assert seen["basic"] is sympy.Basic, seen["basic"]
assert isinstance(sympy.Integer(1), seen["basic"])
assert seen["function"]._torchdynamo_disable is True
assert not [name for name, module in sys.modules.items() if type(module).__module__.startswith("oneflow.engine.core")]
"""
IN_ANOTHER_THREAD = "thread = threading.Thread(target=look); thread.start(); thread.join()"


@pytest.mark.parametrize("look", ["look()", IN_ANOTHER_THREAD], ids=["same thread", "another thread"])
@pytest.mark.parametrize("traced", [GRAPH, JOB], ids=["graph", "job"])
def test_imports_during_a_trace_give_the_real_modules(traced: str, look: str, tmp_path: Path) -> None:
    (tmp_path / "user_module.py").write_text(MODULE)
    program = IMPORTS + traced.replace("LOOK", look) + CHECK
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
