"""The first trace of a process does not load torch's compiler, and leaves torch as it found it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BEFORE = """
import sys
import numpy as np
import torch
import oneflow as flow
import oneflow.typing as tp

def loaded():
    return [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))]

@flow.global_function(type="train")
def train(x: tp.Numpy.Placeholder((4, 1, 6, 6)), labels: tp.Numpy.Placeholder((4,), dtype=flow.int32)) -> tp.Numpy:
    in_body()
    x = flow.layers.conv2d(x, 3, 3, padding="SAME", activation=flow.nn.relu, kernel_initializer=flow.ones_initializer(), name="conv")
    x = flow.nn.dropout(flow.nn.max_pool2d(x, 2, 2, "SAME"), 0.5)
    x = flow.layers.dense(flow.reshape(x, (4, -1)), 5, kernel_initializer=flow.ones_initializer(), name="dense")
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
    flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
    return loss

def steps():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(4, 1, 6, 6)).astype(np.float32), np.arange(4, dtype=np.int32)
    return b"".join(train(x, labels).tobytes() for _ in range(3))

def in_body():
    pass

finders = list(sys.meta_path)
"""

LEAN = """
first = steps()
assert not loaded(), loaded()
assert sys.meta_path == finders and not {"_dynamo", "_inductor"} & vars(torch).keys()

class Net(flow.nn.Graph):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.LayerNorm(3))
    def build(self, x):
        return self.model(x)

net, x = Net(), torch.ones(2, 3)
assert torch.allclose(net(x), net.model(x)) and not loaded()
flow.plan(train, devices=2)
assert not loaded()
"""

COMPILED_AFTERWARDS = f"""{LEAN}
relu = torch._refs.nn.functional.relu
assert torch.equal(torch.compile(net.model, backend="eager")(x), net.model(x))
relu(torch.ones(2, device="meta"))
while not hasattr(relu, "__dynamo_disable"):
    relu = relu.__wrapped__
assert relu.__dynamo_disable is not relu
"""

LOADED_BEFORE = """
import torch._dynamo
kept = sys.modules["torch._dynamo"]
first = steps()
assert sys.modules["torch._dynamo"] is kept and sys.meta_path == finders
"""

ASKED_FOR = """
def in_body():
    import torch._dynamo.utils
    from torch._inductor import utils
    import torch._dynamo.config
    assert torch._dynamo.utils is sys.modules["torch._dynamo.utils"] and utils is sys.modules["torch._inductor.utils"]
    assert torch._dynamo.utils.__spec__.origin.endswith("utils.py")
    assert torch._dynamo.config is sys.modules["torch._dynamo.config"] and torch._inductor.config.max_autotune is False
    torch._dynamo.reset()
first = steps()
assert sys.meta_path == finders
"""


def ran(code: str) -> str:
    """The losses of a program in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run(
        [sys.executable, "-c", f"{BEFORE}{code}\nprint(first.hex())"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.fixture(scope="module")
def expected() -> str:
    return ran(LOADED_BEFORE)


@pytest.mark.parametrize("code", [LEAN, COMPILED_AFTERWARDS, ASKED_FOR], ids=["not loaded", "loaded afterwards", "loaded in a body"])
def test_losses_are_the_same_whether_the_compiler_is_loaded_or_not(code: str, expected: str) -> None:
    assert ran(code) == expected
