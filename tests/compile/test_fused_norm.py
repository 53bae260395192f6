"""Batch norm with a sum and relu is one op, forward and backward, with the values of plain torch; nothing is fused that
something else reads or changes."""

from __future__ import annotations

import subprocess

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from warm_python import WARM

import oneflow as flow
from oneflow import nn
from oneflow.engine.ops import native
from oneflow.engine.ops.cpu import fused_norm
from oneflow.engine.passes import fused_norm as passes
from oneflow.engine.passes.fused_norm import fuse_batch_norms
from oneflow.engine.step.codegen import generate
from oneflow.nn.graph import GraphModule

aten = torch.ops.aten
FORWARD, BACKWARD = torch.ops.oneflow.batch_norm_relu.default, torch.ops.oneflow.batch_norm_relu_backward.default
LAST = torch.channels_last
EPS, MOMENTUM = 1e-5, 0.1

built = pytest.mark.skipif(native.library is None, reason="the C extension is not built")


def drawn(*shape: int, far: float = 0.0) -> Tensor:
    made = torch.randn(shape) * 2 + far
    return made.to(memory_format=LAST) if len(shape) == 4 else made


@pytest.fixture(autouse=True)
def seeded_and_small(monkeypatch):
    torch.manual_seed(5)
    monkeypatch.setattr(passes, "BYTES", 1)
    monkeypatch.setattr(fused_norm, "FOR_A_THREAD", 1)


# ------------------------------------------------------------------ the ops against float64


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("memory", [LAST, torch.contiguous_format])
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (4, 64, 9, 9), (3, 257, 2, 3), (1, 1, 70, 3), (2, 600, 3, 2)])
@pytest.mark.parametrize(("has_residual", "relu"), [(False, False), (False, True), (True, False), (True, True)])
def test_forward_and_backward_are_those_of_float64(shape, memory, has_residual, relu, threads, ceiling=None):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        channels = shape[1]
        x = drawn(*shape, far=30.0).contiguous(memory_format=memory)
        residual = drawn(*shape).contiguous(memory_format=memory) if has_residual else None
        weight, bias, mean, var = drawn(channels), drawn(channels), drawn(channels), drawn(channels) ** 2
        wide = [t.double().requires_grad_() for t in (x, weight, bias)]
        wide_mean, wide_var = mean.double(), var.double()
        plain = F.batch_norm(wide[0], wide_mean, wide_var, wide[1], wide[2], True, MOMENTUM, EPS)
        plain = plain if residual is None else plain + residual
        plain = F.hardtanh(plain, 0.0, float("inf") if ceiling is None else ceiling) if relu else plain
        found, saved_mean, saved_invstd = FORWARD(x, residual, weight, bias, mean, var, MOMENTUM, EPS, relu, ceiling)
        for one, expected in ((found, plain), (mean, wide_mean), (var, wide_var)):
            close(one, expected.detach())
        gradient, other = drawn(*shape).contiguous(memory_format=memory), drawn(*shape).contiguous(memory_format=memory)
        expected = torch.autograd.grad(plain, wide, (gradient + other).double())
        *gradients, masked = BACKWARD(
            gradient, other, found if relu else None, x, weight, saved_mean, saved_invstd, EPS, True, ceiling
        )
        for one, wanted in zip(gradients, expected):
            close(one, wanted)
        close(
            masked, (gradient + other).double() * (((plain > 0) & (plain < (ceiling or float("inf")))) if relu else 1)
        )
        again = BACKWARD(
            gradient, other, found if relu else None, x, weight, saved_mean, saved_invstd, EPS, False, ceiling
        )
        assert all(torch.equal(a, b) for a, b in zip(again, gradients)) and not again[3].numel()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("memory", [LAST, torch.contiguous_format])
def test_relu_may_have_a_ceiling(memory):
    test_forward_and_backward_are_those_of_float64((3, 257, 2, 3), memory, True, True, 2, ceiling=2.5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_computed_by_the_aten_ops(dtype):
    x, weight, bias = drawn(2, 4, 3, 3).to(dtype), drawn(4).to(dtype), drawn(4).to(dtype)
    expected = torch.relu(aten.native_batch_norm(x, weight, bias, None, None, True, MOMENTUM, EPS)[0])
    assert torch.equal(FORWARD(x, None, weight, bias, None, None, MOMENTUM, EPS, True)[0], expected)


def test_a_nan_stays_one():
    x = drawn(2, 4, 3, 3)
    x[0, 1, 2, 2] = float("nan")
    found = FORWARD(x, None, torch.ones(4), torch.zeros(4), None, None, MOMENTUM, EPS, True)[0]
    assert found[:, 1].isnan().all() and not found[:, [0, 2, 3]].isnan().any()


# ------------------------------------------------------------------ the pass


def targets(function, *inputs: Tensor) -> list[object]:
    """What the graph of a function calls after the pass; its values, and what it leaves in its arguments, must be those
    of before."""
    module = make_fx(function, tracing_mode="fake")(*[t.clone() for t in inputs])
    fuse_batch_norms(module.graph)
    module.graph.lint()
    given, kept = [t.clone() for t in inputs], [t.clone() for t in inputs]
    torch.testing.assert_close(generate(module.graph, "test").call(*given), function(*kept), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(given, kept, rtol=1e-5, atol=1e-5)
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def norm(x, w, b, m, v):
    return aten.native_batch_norm.default(x, w, b, m, v, True, MOMENTUM, EPS)


def arguments() -> list[Tensor]:
    return [drawn(4, 8, 6, 6), drawn(8), drawn(8), drawn(8), drawn(8) ** 2]


@built
@pytest.mark.parametrize(
    "function",
    [
        lambda x, *rest: torch.relu(norm(x, *rest)[0]),
        lambda x, *rest: torch.relu_(norm(x, *rest)[0]),
        lambda x, *rest: torch.relu(norm(x, *rest)[0] + x),
        lambda x, *rest: torch.relu(x + norm(x, *rest)[0]),
        lambda x, *rest: norm(x, *rest)[0] + x,
        lambda x, *rest: torch.relu(norm(x, *rest)[0].add_(x)),
        lambda x, *rest: torch.relu(norm(x, *rest)[0] + norm(x * 2.0, *rest[:2], None, None)[0]),
        lambda x, *rest: (torch.relu((y := norm(x, *rest))[0]), y[1], y[2]),
        lambda x, *rest: F.relu6(norm(x, *rest)[0]),
        lambda x, *rest: F.hardtanh(norm(x, *rest)[0] + x, 0.0, 1.5),
    ],
    ids=range(10),
)
def test_a_norm_takes_what_stands_behind_it(function):
    found = targets(function, *arguments())
    assert found.count(FORWARD) == 1 and not set(found) & {
        aten.relu.default,
        aten.relu_.default,
        aten.hardtanh.default,
        aten.add.Tensor,
        aten.add_.Tensor,
    }


@built
@pytest.mark.parametrize(
    "function",
    [
        lambda x, *rest: norm(x, *rest)[0],
        lambda x, *rest: F.hardtanh(norm(x, *rest)[0]),  # another floor
        lambda x, *rest: ((y := norm(x, *rest)[0]), torch.relu(y)),  # a result
        lambda x, *rest: torch.relu(aten.native_batch_norm.default(x, *rest, False, MOMENTUM, EPS)[0]),  # no training
        lambda x, *rest: torch.relu(norm(x.contiguous(), *rest)[0]),  # other memory
        lambda x, *rest: torch.relu(norm(x.double(), *(t.double() for t in rest))[0]),
        lambda x, *rest: torch.add(norm(x, *rest)[0], x, alpha=2.0),
        lambda x, w, b, m, v: ((y := norm(x, w, b, m, v)[0]), n := norm(x, w, b, m, v)[0] * 2.0, torch.relu(y)[:1], n)[
            2:
        ],  # statistics that another changes
        lambda x, w, b, m, v: ((y := norm(x, w, b, m, v)[0]), m * 2.0, torch.relu(y))[1:],  # and that another reads
        lambda x, *rest: ((y := norm(x, *rest)), y[1] * 2.0, torch.relu(y[0]))[1:],  # the mean is read before relu
    ],
    ids=range(10),
)
def test_what_cannot_be_fused_is_left_alone(function):
    assert FORWARD not in targets(function, *arguments())


def test_without_the_extension_nothing_is_fused(monkeypatch):
    monkeypatch.setattr(native, "library", None)
    assert FORWARD not in targets(lambda x, *rest: torch.relu(norm(x, *rest)[0]), *arguments())


def test_a_process_that_is_sent_a_program_knows_its_ops():
    program = "import torch, oneflow.engine.program.serialize; ops = torch.ops.oneflow; ops.batch_norm_relu, ops.batch_norm_relu_backward, ops.cross_entropy_backward_, ops.winograd_convolution_backward"
    subprocess.run([*WARM.command(), "-c", program], check=True, timeout=120)


def backward(g, x, w, mean, invstd):
    return aten.native_batch_norm_backward.default(g, x, w, None, None, mean, invstd, True, EPS, [True, True, True])


@built
@pytest.mark.parametrize(
    ("function", "sums"),
    [
        (lambda g, h, y, *rest: backward(aten.threshold_backward.default(g, y, 0), *rest), 0),
        (lambda g, h, y, *rest: backward(aten.threshold_backward.default(g + h, y, 0), *rest), 0),
        (lambda g, h, y, *rest: (*backward(m := aten.threshold_backward.default(g + h, y, 0), *rest), m * 2.0), 0),
        (
            lambda g, h, y, *rest: (*backward(aten.threshold_backward.default(s := g + h, y, 0), *rest), s),
            1,
        ),  # the sum is a result
        (lambda g, h, y, *rest: backward(aten.hardtanh_backward.default(g + h, y, 0.0, 1.0), *rest), 0),
    ],
    ids=range(5),
)
def test_a_backward_pass_takes_what_stands_before_it(function, sums):
    made = torch.relu(drawn(4, 8, 6, 6))
    found = targets(
        function,
        drawn(4, 8, 6, 6),
        drawn(4, 8, 6, 6),
        made,
        drawn(4, 8, 6, 6),
        drawn(8),
        drawn(8),
        drawn(8).abs() + 0.5,
    )
    assert found.count(BACKWARD) == 1 and not set(passes._MASKS) & set(found) and found.count(aten.add.Tensor) == sums


@built
@pytest.mark.parametrize(
    "function",
    [
        lambda g, h, y, *rest: backward(g, *rest),
        lambda g, h, y, *rest: backward(aten.threshold_backward.default(g, y, 1), *rest),
        lambda g, h, y, x, w, m, i: aten.native_batch_norm_backward.default(
            aten.threshold_backward.default(g, y, 0), x, w, None, None, m, i, True, EPS, [True, False, False]
        )[0],
        lambda g, h, y, x, *rest: ((m := aten.threshold_backward.default(g, y, 0)), backward(m, x * 2.0, *rest))[
            1
        ],  # its input is made again behind the mask
    ],
    ids=range(4),
)
def test_other_backward_passes_are_left_alone(function):
    made = torch.relu(drawn(4, 8, 6, 6))
    assert BACKWARD not in targets(
        function,
        drawn(4, 8, 6, 6),
        drawn(4, 8, 6, 6),
        made,
        drawn(4, 8, 6, 6),
        drawn(8),
        drawn(8),
        drawn(8).abs() + 0.5,
    )


# ------------------------------------------------------------------ whole steps


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)

    def forward(self, x):
        first = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(first + self.norm2(self.conv2(first))).mean((2, 3))


class Train(nn.Graph):
    def __init__(self, model, again=False):
        super().__init__()
        self.model = model
        if again:
            self.model.to(GraphModule).activation_checkpointing = True
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.1))

    def build(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        return loss


@built
@pytest.mark.parametrize("again", [False, True], ids=["kept", "made again"])
def test_a_graph_learns_as_eager_code_does(again):
    model, eager = Block().to(memory_format=LAST), Block().to(memory_format=LAST)
    eager.load_state_dict(model.state_dict())
    x, y, optimizer, graph = (
        drawn(4, 3, 8, 8),
        torch.randint(0, 8, (4,)),
        torch.optim.SGD(eager.parameters(), lr=0.1),
        Train(model, again),
    )
    for _ in range(4):
        loss = F.cross_entropy(eager(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(graph(x, y), loss.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(dict(model.state_dict()), dict(eager.state_dict()), rtol=1e-4, atol=1e-5)
    (step,) = graph._compiled.values()
    called = [node.target for section in step.executor._program.sections.values() for node in section.graph.nodes]
    assert called.count(FORWARD) >= 2
    assert again or called.count(BACKWARD) == 1  # the gradient of a mean is no picture in memory
