"""Convolutions of 3 x 3 and 5 x 5 filters by Winograd have the values of plain torch, forward and backward, and stand
only where they are plain."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import oneflow as flow
from oneflow import nn
from oneflow.engine.ops import native
from oneflow.engine.ops.cpu import winograd
from oneflow.engine.passes.winograd import convolve_by_winograd

aten = torch.ops.aten
FORWARD, BACKWARD = (
    torch.ops.oneflow.winograd_convolution.default,
    torch.ops.oneflow.winograd_convolution_backward.default,
)
LAST = torch.channels_last

built = pytest.mark.skipif(native.winograd is None, reason="the C extension is not built, or there is no AVX2")


@pytest.fixture(autouse=True)
def seeded_and_small(monkeypatch):
    torch.manual_seed(7)
    monkeypatch.setattr(winograd, "TILES", 1)
    monkeypatch.setattr(winograd, "MULTIPLICATIONS", 1)
    monkeypatch.setattr(winograd, "FOR_A_THREAD", 1)


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6 * float(expected.abs().max()) + 1e-12)


def laid_out(tensor: Tensor, memory: torch.memory_format) -> Tensor:
    return tensor.contiguous(memory_format=memory)


def check(
    shape: tuple[int, int, int, int],
    filters: int,
    padding: list[int],
    memory: torch.memory_format = LAST,
    size: int = 3,
) -> None:
    x, weight, bias = (
        laid_out(torch.randn(shape), LAST),
        laid_out(torch.randn(filters, shape[1], size, size), memory),
        torch.randn(filters),
    )
    wide = [one.double().requires_grad_() for one in (x, weight, bias)]
    plain = torch.conv2d(*wide, 1, padding)
    close(FORWARD(x, weight, bias, padding), plain.detach())
    gradient = laid_out(torch.randn(plain.shape), LAST)
    expected = torch.autograd.grad(plain, wide, gradient.double())
    for found, wanted in zip(BACKWARD(gradient, x, weight, [filters], padding, [True, True, True]), expected):
        close(found, wanted)


SHAPES = [
    ((2, 16, 5, 7), 32, [1, 1]),
    ((1, 48, 8, 8), 80, [0, 0]),
    ((3, 96, 6, 9), 16, [2, 2]),
    ((2, 64, 14, 14), 64, [1, 1]),
    ((1, 160, 3, 4), 48, [0, 2]),
    ((1, 16, 1, 1), 16, [1, 1]),
    ((5, 32, 2, 31), 144, [2, 0]),
]


@pytest.mark.parametrize("memory", [LAST, torch.contiguous_format])
@pytest.mark.parametrize(("shape", "filters", "padding"), SHAPES)
def test_values_and_gradients_are_those_of_float64(shape, filters, padding, memory, threads):
    check(shape, filters, padding, memory)


@pytest.mark.parametrize("memory", [LAST, torch.contiguous_format])
@pytest.mark.parametrize(
    ("shape", "filters", "padding"),
    [
        ((2, 16, 5, 7), 32, [2, 2]),
        ((1, 48, 8, 8), 80, [0, 0]),
        ((3, 96, 6, 9), 16, [4, 3]),
        ((2, 32, 14, 14), 64, [2, 2]),
        ((1, 16, 1, 2), 16, [2, 2]),
    ],
)
def test_larger_filters_are_summed_of_parts(shape, filters, padding, memory, threads):
    check(shape, filters, padding, memory, size=5)


@built
@pytest.mark.parametrize("threads", [1, 5], indirect=True)
def test_many_tiles_are_taken_block_by_block(threads):
    check((4, 32, 60, 62), 32, [1, 1])


@built
def test_processors_with_less_have_kernels_of_their_own():
    program = """
import torch
from oneflow.engine.ops import native
from oneflow.engine.ops.cpu import winograd
winograd.TILES = winograd.MULTIPLICATIONS = 1
assert native.winograd is not None
torch.manual_seed(1)
x, w = torch.randn(2, 48, 9, 6).to(memory_format=torch.channels_last), torch.randn(80, 48, 3, 3).to(memory_format=torch.channels_last)
y = torch.conv2d(x.double(), w.double(), None, 1, 1)
g = torch.randn(y.shape).to(memory_format=torch.channels_last)
found = torch.ops.oneflow.winograd_convolution(x, w, None, [1, 1]), *torch.ops.oneflow.winograd_convolution_backward(g, x, w, None, [1, 1], [True, True, False])
wanted = y, *torch.ops.aten.convolution_backward(g.double(), x.double(), w.double(), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
print(max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found[:3], wanted[:3])))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 2e-6


@built
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_does_not_become_finite(value):
    x, weight = laid_out(torch.randn(1, 16, 8, 8), LAST), laid_out(torch.randn(16, 16, 3, 3), LAST)
    x[0, 3, 4, 5] = value
    plain = torch.conv2d(x, weight, None, 1, 1)
    found = FORWARD(x, weight, None, [1, 1])
    assert not found[~plain.isfinite()].isfinite().any()


@pytest.mark.parametrize("change", ["channels", "filters", "dtype", "memory"])
def test_other_pictures_are_left_to_torch(change):
    channels, filters = (17 if change == "channels" else 16), (15 if change == "filters" else 16)
    dtype = torch.bfloat16 if change == "dtype" else torch.float32
    x = laid_out(torch.randn(2, channels, 6, 6, dtype=dtype), torch.contiguous_format if change == "memory" else LAST)
    weight = torch.randn(filters, channels, 3, 3, dtype=dtype)
    plain = aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert torch.equal(FORWARD(x, weight, None, [1, 1]), plain)
    gradient = torch.ones_like(plain)
    expected = aten.convolution_backward(
        gradient, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    )
    found = BACKWARD(gradient, x, weight, None, [1, 1], [True, True, False])
    assert all(torch.equal(a, b) for a, b in zip(found[:2], expected[:2]))


# ------------------------------------------------------------------ the pass


def ops_of(convolution, x: Tensor, weight: Tensor) -> list[object]:
    graph = make_fx(convolution, tracing_mode="fake")(x, weight).graph
    convolve_by_winograd(graph)
    return [node.target for node in graph.nodes if node.op == "call_function"]


@built
@pytest.mark.parametrize(
    ("settings", "is_taken"),
    [
        ({"padding": 1}, True),
        ({}, True),
        ({"padding": 3}, False),
        ({"padding": 1, "stride": 2}, False),
        ({"padding": 1, "dilation": 2}, False),
        ({"padding": 1, "groups": 2}, False),
    ],
)
def test_only_plain_convolutions_are_taken(settings, is_taken):
    x, weight = (
        laid_out(torch.randn(2, 32, 8, 8), LAST),
        laid_out(torch.randn(32, 32 // settings.get("groups", 1), 3, 3), LAST),
    )
    found = ops_of(lambda x, weight: torch.conv2d(x, weight, **settings), x, weight)
    assert (FORWARD in found) is is_taken


@built
@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_filters_of_other_sizes_are_left_to_torch(size):
    x, weight = laid_out(torch.randn(2, 32, 8, 8), LAST), torch.randn(32, 32, size, size)
    assert FORWARD not in ops_of(torch.conv2d, x, weight)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 48, 3, padding=1, bias=False),
            nn.BatchNorm2d(48),
            nn.Conv2d(48, 16, 3),
        )

    def forward(self, x):
        return self.layers(x)


def trained(net: nn.Module, steps: int) -> list[Tensor]:
    optimizer = flow.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = net
            self.add_optimizer(optimizer)

        def build(self, x):
            loss = self.net(x).square().mean()
            loss.backward()
            return loss

    graph = Train()
    pictures = laid_out(torch.randn(4, 3, 13, 12), LAST)
    losses = [graph(pictures) for _ in range(steps)]
    return [*losses, *(one.detach().clone() for one in net.parameters())]


@built
def test_a_graph_trains_by_it_as_without_it(monkeypatch):
    results = []
    for tier in ("on", "off"):
        monkeypatch.setenv("ONEFLOW_FUSION", tier)
        torch.manual_seed(3)
        results.append(trained(Net().to(memory_format=LAST), steps=4))
    for found, expected in zip(*results):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
