"""The first trace of a process loads neither torch's compiler nor sympy nor DTensor, and leaves torch as it found
it."""

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

HEAVY = "torch._dynamo", "torch._inductor", "sympy", "torch.utils._sympy", "torch.fx.experimental.symbolic_shapes", "torch.distributed.tensor"

def loaded():
    return [name for name in sys.modules if name.startswith(HEAVY)]

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
assert not {"symbolic_shapes"} & vars(torch.fx.experimental).keys() and not {"triton_kernel_wrap"} & vars(torch._higher_order_ops).keys()

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

SYMBOLS_AFTERWARDS = f"""{LEAN}
import sympy
from sympy import Symbol
from sympy.core.numbers import Integer
assert isinstance(sympy.Symbol("n") + 1, sympy.Basic) and Symbol is sympy.Symbol and isinstance(sympy.Integer(2), Integer)

from torch.fx.experimental.proxy_tensor import make_fx
by_symbols = make_fx(lambda x: torch.relu(x.reshape(-1)) * x.shape[0], tracing_mode="symbolic")(torch.ones(3, 2))
assert by_symbols(-torch.ones(5, 2)).shape == (10,) and (by_symbols(torch.ones(5, 2)) == 5).all()

from torch.distributed.tensor import DTensor, Replicate
assert issubclass(DTensor, torch.Tensor) and Replicate() == Replicate()
"""

SYMBOLS_IN_BODY = """
import types
somebodys = types.ModuleType("somebodys")
def in_body():
    exec(compile("from torch.fx.experimental.symbolic_shapes import guard_or_false", "somebodys.py", "exec"), vars(somebodys))  # it keeps what it gets
    import sympy
    from torch.fx.experimental.symbolic_shapes import ShapeEnv, guard_or_false, sym_eq
    assert isinstance(sympy.Integer(1), sympy.Basic) and sympy.Integer is sys.modules["sympy"].Integer
    assert isinstance(ShapeEnv().create_unbacked_symint(), torch.SymInt) and guard_or_false(sym_eq((1, 2), [1, 2]))
first = steps()
assert sys.meta_path == finders and "sympy" in sys.modules
assert somebodys.guard_or_false is sys.modules["torch.fx.experimental.symbolic_shapes"].guard_or_false
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
        [sys.executable, "-c", f"{BEFORE}{code}\nprint(first.hex())"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


@pytest.fixture(scope="module")
def expected() -> str:
    return ran(LOADED_BEFORE)


CASES = {
    "the compiler afterwards": COMPILED_AFTERWARDS,
    "the compiler in a body": ASKED_FOR,
    "symbols afterwards": SYMBOLS_AFTERWARDS,
    "symbols in a body": SYMBOLS_IN_BODY,
}


@pytest.mark.parametrize("code", CASES.values(), ids=CASES)
def test_losses_are_the_same_whatever_is_loaded(code: str, expected: str) -> None:
    assert ran(code) == expected
