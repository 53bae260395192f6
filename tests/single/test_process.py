"""``import oneflow``, a job and a graph change nothing in the process but what docs/process.md lists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LISTED = set(re.findall(r"`([^`]+)`", (ROOT / "docs" / "process.md").read_text(encoding="utf-8")))
SWITCHES = {
    name: "0"
    for name in ("ONEFLOW_TORCH_METHODS", "ONEFLOW_IMPORT_HINTS", "ONEFLOW_PAUSE_GC", "ONEFLOW_DEFER_INTERRUPTS")
}

PROGRAM = """
import gc, json, sys
import torch, torch._dynamo, sympy, numpy as np
import torch.utils.data, torch.distributed.tensor, torch.fx.experimental.proxy_tensor
from process_state import modules, state, torch_attributes

gc.collect()
before, loaded, attributes = state(), modules(), torch_attributes()
paused = []

import oneflow as flow

@flow.global_function(type="train")
def job(x=flow.FixedTensorDef((4, 3))):
    paused.append(not gc.isenabled())
    w = flow.get_variable("w", (3, 2), initializer=flow.random_normal_initializer())
    loss = flow.math.reduce_mean(flow.nn.dropout(flow.matmul(x, w), 0.5))
    flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
    return loss

class Net(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = model
    def build(self, x):
        paused.append(not gc.isenabled())
        return self.model(x)

after_import = state()
for _ in range(2):
    job(np.ones((4, 3), np.float32)).get()
random = torch.get_rng_state()
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
torch.set_rng_state(random)
graph = Net()
for _ in range(2):
    graph(torch.ones(2, 3, 8, 8))
after = state()
new = torch_attributes()
changes = [name for one in (after_import, after) for name in one.keys() | before.keys() if one.get(name) != before.get(name)]
changes += [f"sys.modules[{name!r}]" for name, module in modules().items() if loaded.get(name, module) != module]
changes += [
    ".".join(name.split(".")[-2:]) for name, value in new.items()
    if name not in attributes and getattr(value, "__module__", "").startswith("oneflow")
    or isinstance(value, property) and str(getattr(value.fget, "__module__", "")).startswith("oneflow")
    or attributes.get(name, value) is not value
]
print(json.dumps([sorted(set(changes)), paused]))
"""


@lru_cache(maxsize=None)
def changes(*switched_off: str) -> tuple[list[str], list[bool]]:
    """What changed in a process that imported oneflow and ran a job and a graph, and whether each saw gc paused."""
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path]))
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": paths, **dict.fromkeys(switched_off, "0")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    names, paused = json.loads(run.stdout.splitlines()[-1])
    return names, paused


def test_every_change_of_the_process_is_documented() -> None:
    names, _ = changes()
    unlisted = [name for name in names if name not in LISTED]
    assert not unlisted, f"docs/process.md does not list {unlisted}"
    assert {"Tensor.to_global", "Module.to_local", "AbsentModules"} <= set(names)  # the comparison sees changes


def test_switches_leave_the_process_as_it_was() -> None:
    names, paused = changes(*SWITCHES)
    assert not names and not any(paused)


def test_the_collector_is_paused_while_user_code_is_traced() -> None:
    _, paused = changes()
    assert all(paused)


def test_the_switches_are_documented() -> None:
    assert {f"{name}=0" for name in SWITCHES} <= LISTED
