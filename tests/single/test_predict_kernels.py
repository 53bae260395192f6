"""Kernels of prediction against plain torch in float64: odd sizes, strides, paddings, channels that fill no vector, any
number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from oneflow.engine.ops import native
from oneflow.engine.ops.cpu import fused_conv
from oneflow.engine.ops.cpu.native_sequence import At, Op, RunningSequence, Sequence, _Memory

LAST = torch.channels_last
NONE = ("none", 0.0, 0.0)
built = pytest.mark.skipif(native.conv is None, reason="the C extension is not built, or there is no AVX2")
ACTIVATIONS = {
    "none": (NONE, lambda x: x),
    "relu": (("clip", 0.0, inf), F.relu),
    "relu6": (("clip", 0.0, 6.0), F.relu6),
    "hardtanh": (("clip", -0.5, 0.25), lambda x: F.hardtanh(x, -0.5, 0.25)),
    "hardswish": (("hardswish", 0.0, 0.0), F.hardswish),
    "hardsigmoid": (("hardsigmoid", 0.0, 0.0), F.hardsigmoid),
    "silu": (("silu", 0.0, 0.0), F.silu),
    "sigmoid": (("sigmoid", 0.0, 0.0), torch.sigmoid),
    "gelu": (("gelu", 0.0, 0.0), F.gelu),
    "gelu_tanh": (("gelu_tanh", 0.0, 0.0), lambda x: F.gelu(x, approximate="tanh")),
}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def run_one(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """One op by the extension, on packed filters."""
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    numbers = iter(range(len(tensors)))
    op = Op(function, tuple(At(next(numbers)) if isinstance(argument, Tensor) else argument for argument in arguments))
    return RunningSequence(Sequence(len(tensors), (op,), (len(tensors),)))(*tensors)[0]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=3e-6 * float(expected.abs().max()) + 1e-12)


def picture(*shape: int) -> Tensor:
    return torch.randn(shape).contiguous(memory_format=LAST)


def check_convolution(
    shape: tuple[int, int, int, int],
    filters: int,
    across: tuple[int, int],
    stride: tuple[int, int],
    pad: tuple[int, int],
    apart: tuple[int, int],
    name: str = "relu",
) -> None:
    """With bias and residual, without them, and from memory of another order."""
    activation, plain = ACTIVATIONS[name]
    x, weight, bias = (
        picture(*shape),
        torch.randn(filters, shape[1], *across) / (shape[1] * across[0] * across[1]) ** 0.5,
        torch.randn(filters),
    )
    bare = F.conv2d(x.double(), weight.double(), None, stride, pad, apart)
    residual = picture(*bare.shape)
    packed, geometry, made = fused_conv.packed_filters(weight), (*across, *stride, *pad, *apart), tuple(bare.shape[1:])
    whole = run_one(
        fused_conv.convolution, x, packed, fused_conv.filled_bias(bias), residual, geometry, made, activation
    )
    close(whole, plain(bare + bias.view(-1, 1, 1) + residual))
    close(run_one(fused_conv.convolution, x, packed, None, None, geometry, made, activation), plain(bare))
    torch.testing.assert_close(
        run_one(
            fused_conv.convolution,
            x.contiguous(),
            packed,
            fused_conv.filled_bias(bias),
            residual.contiguous(),
            geometry,
            made,
            activation,
        ),
        whole,
    )


CONVOLUTIONS = [
    ((1, 3, 9, 7), 5, (3, 3), (2, 2), (1, 1), (1, 1)),
    ((2, 17, 5, 6), 33, (1, 1), (1, 1), (0, 0), (1, 1)),
    ((1, 64, 4, 4), 16, (1, 1), (1, 1), (0, 0), (1, 1)),
    ((3, 5, 8, 11), 24, (5, 3), (1, 2), (2, 0), (1, 1)),
    ((1, 4, 13, 13), 40, (3, 3), (1, 1), (2, 2), (2, 2)),
    ((1, 3, 19, 19), 64, (7, 7), (2, 2), (3, 3), (1, 1)),
    ((1, 512, 3, 5), 70, (1, 1), (1, 1), (0, 0), (1, 1)),
    ((2, 100, 7, 7), 31, (3, 3), (1, 1), (1, 1), (1, 1)),
    ((1, 6, 9, 9), 8, (1, 1), (2, 2), (0, 0), (1, 1)),
    ((1, 2, 2, 2), 1, (3, 3), (1, 1), (2, 2), (1, 1)),
]


@built
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_of_any_size(case: tuple, threads: int) -> None:
    check_convolution(*case)


@built
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name: str) -> None:
    check_convolution((1, 20, 6, 5), 37, (1, 1), (1, 1), (0, 0), (1, 1), name)
    check_depthwise((1, 21, 6, 5), 3, 1, (1, 1), name)


@built
def test_zeros_below_and_right_alone() -> None:
    """As a stride of 2 with "SAME" padding has them: the size of what is made says how many."""
    x, weight = picture(1, 6, 8, 8), torch.randn(10, 6, 3, 3)
    expected = F.conv2d(F.pad(x, (0, 1, 0, 1)).double(), weight.double(), None, 2)
    close(
        run_one(
            fused_conv.convolution,
            x,
            fused_conv.packed_filters(weight),
            None,
            None,
            (3, 3, 2, 2, 0, 0, 1, 1),
            (10, 4, 4),
            NONE,
        ),
        expected,
    )
    close(fused_conv.convolution(x, weight, None, None, (3, 3, 2, 2, 0, 0, 1, 1), (10, 4, 4), NONE), expected)


def check_depthwise(
    shape: tuple[int, int, int, int], across: int, stride: int, pad: tuple[int, int], name: str = "relu6"
) -> None:
    activation, plain = ACTIVATIONS[name]
    x, weight, bias = picture(*shape), torch.randn(shape[1], 1, across, across), torch.randn(shape[1])
    expected = F.conv2d(x.double(), weight.double(), bias.double(), stride, pad, 1, shape[1])
    made = run_one(
        fused_conv.depthwise,
        x,
        fused_conv.packed_taps(weight),
        bias,
        (across, across, stride, stride, *pad),
        tuple(expected.shape[1:]),
        activation,
    )
    close(made, plain(expected))


@built
@pytest.mark.parametrize(("across", "stride"), fused_conv.TAPS)
@pytest.mark.parametrize("channels", [1, 16, 37])
@pytest.mark.parametrize("size", [(1, 9, 7), (2, 16, 23)])
def test_depthwise_convolutions(
    across: int, stride: int, channels: int, size: tuple[int, int, int], threads: int
) -> None:
    pictures, height, width = size
    check_depthwise((pictures, channels, height, width), across, stride, (across // 2, across // 2))
    check_depthwise((pictures, channels, height, width), across, stride, (0, across - 1))


@built
@pytest.mark.parametrize(
    "case", [((1, 16, 7, 7), 16, 1), ((1, 32, 14, 9), 48, 1), ((2, 48, 5, 8), 16, 0), ((1, 64, 31, 29), 32, 2)], ids=str
)
@pytest.mark.parametrize("name", ["none", "relu", "relu6"])
def test_winograd_convolutions(case: tuple, name: str, threads: int) -> None:
    shape, filters, pad = case
    activation, plain = ACTIVATIONS[name]
    x, bias = picture(*shape), torch.randn(filters)
    weight = (torch.randn(filters, shape[1], 3, 3) / shape[1] ** 0.5).contiguous(memory_format=LAST)
    bare = F.conv2d(x.double(), weight.double(), None, 1, pad)
    residual, made = picture(*bare.shape), tuple(bare.shape[1:])
    packed = fused_conv.winograd_filters(weight)
    close(
        run_one(fused_conv.winograd, x, packed, bias, residual, (pad, pad), made, activation),
        plain(bare + bias.view(-1, 1, 1) + residual),
    )
    close(run_one(fused_conv.winograd, x, packed, None, None, (pad, pad), made, activation), plain(bare))


@built
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 33, 10), (13, 768, 40), (128, 96, 384), (29, 1024, 65)])
@pytest.mark.parametrize("name", ["none", "gelu"])
def test_linear_layers(rows: int, depth: int, columns: int, name: str, threads: int) -> None:
    activation, plain = ACTIVATIONS[name]
    x, weight, bias, residual = (
        torch.randn(rows, depth),
        torch.randn(columns, depth) / depth**0.5,
        torch.randn(columns),
        torch.randn(1, rows, columns),
    )
    packed, bare = fused_conv.packed_filters(weight), x.double() @ weight.double().t()
    close(
        run_one(fused_conv.linear, x, packed, fused_conv.filled_bias(bias), residual, columns, activation),
        plain(bare + bias + residual[0]),
    )
    close(run_one(fused_conv.linear, x, packed, None, None, columns, activation), plain(bare))


@built
@pytest.mark.parametrize("shape", [(1, 37, 7, 7), (2, 16, 1, 3), (3, 5, 14, 9)], ids=str)
def test_means_of_pictures(shape: tuple[int, ...], threads: int) -> None:
    x = picture(*shape)
    for keepdim in (True, False):
        for given in (x, x.contiguous()):
            close(run_one(fused_conv.mean, given, keepdim), x.double().mean([2, 3], keepdim))


@built
@pytest.mark.parametrize("shape", [(1, 37, 7, 7), (2, 16, 1, 3), (3, 5, 14, 9)], ids=str)
def test_channels_have_factors(shape: tuple[int, ...], threads: int) -> None:
    x, factors = picture(*shape), torch.randn(*shape[:2], 1, 1)
    assert torch.equal(run_one(fused_conv.scale, x, factors), x * factors) and torch.equal(
        fused_conv.scale(x, factors), x * factors
    )


def check_pool(shape: tuple[int, int, int, int], across: int, stride: int, pad: int, is_high: bool = False) -> None:
    x = picture(*shape)
    x[0, 0, shape[2] // 2, shape[3] // 2] = float("nan")
    expected = F.max_pool2d(x, across, stride, pad, ceil_mode=is_high)
    for function in (run_one, lambda op, *given: op(*given)):
        found = function(fused_conv.max_pool, x, (across, across, stride, stride, pad, pad), tuple(expected.shape[2:]))
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


POOLS = [((2, 20, 9, 12), 3, 2, 1), ((1, 16, 8, 8), 2, 2, 0), ((1, 3, 7, 5), 3, 1, 1), ((1, 33, 10, 9), 3, 2, 0, True)]


@built
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_pools_keep_nans(case: tuple[Any, ...], threads: int) -> None:
    check_pool(*case)


def check_stem(shape: tuple[int, int, int, int], filters: int, across: int, stride: int, pad: int) -> None:
    """A convolution of few channels reads planes of pixels."""
    x, weight, bias = torch.randn(shape), torch.randn(filters, shape[1], across, across), torch.randn(filters)
    expected = F.conv2d(x.double(), weight.double(), bias.double(), stride, pad)
    geometry = (across, across, stride, stride, pad, pad, 1, 1)
    close(
        run_one(
            fused_conv.convolution,
            x,
            fused_conv.packed_filters(weight),
            fused_conv.filled_bias(bias),
            None,
            geometry,
            tuple(expected.shape[1:]),
            NONE,
        ),
        expected,
    )


STEMS = [
    ((1, 3, 67, 81), 40, 7, 2, 3),
    ((2, 3, 63, 70), 33, 3, 2, 1),
    ((2, 1, 28, 28), 6, 5, 1, 2),
    ((1, 4, 30, 31), 16, 1, 1, 0),
    ((1, 3, 12, 9), 5, 3, 2, 0),
]


@built
@pytest.mark.parametrize("case", STEMS, ids=str)
def test_stems_read_planes(case: tuple[Any, ...], threads: int) -> None:
    check_stem(*case)


def check_pair(shape: tuple[int, int, int, int], wide: int, across: int, stride: int, name: str = "relu6") -> None:
    """A product too large for the cache, whose lines a depthwise convolution reads as they are made; and what follows
    takes the place of what is read no more."""
    activation, plain = ACTIVATIONS[name]
    x, first, taps, last = (
        picture(*shape),
        torch.randn(wide, shape[1], 1, 1),
        torch.randn(wide, 1, across, across),
        torch.randn(8, wide, 1, 1),
    )
    biases, pad = torch.randn(2, wide), across // 2
    inner = plain(F.conv2d(x.double(), first.double(), biases[0].double()))
    inner = plain(F.conv2d(inner, taps.double(), biases[1].double(), stride, pad, groups=wide))
    expected = F.conv2d(inner, last.double())
    one, size = (1, 1, 1, 1, 0, 0, 1, 1), tuple(inner.shape[2:])
    ops = (
        Op(fused_conv.scale, (At(0), At(6))),
        Op(fused_conv.convolution, (At(7), At(1), At(2), None, one, (wide, *shape[2:]), activation)),
        Op(
            fused_conv.depthwise,
            (At(8), At(3), At(4), (across, across, stride, stride, pad, pad), (wide, *size), activation),
        ),
        Op(fused_conv.convolution, (At(9), At(5), None, None, one, (8, *size), NONE)),
        Op(fused_conv.mean, (At(10), True)),
        Op(fused_conv.scale, (At(10), At(11))),
    )
    packed = [
        fused_conv.packed_filters(first),
        fused_conv.filled_bias(biases[0]),
        fused_conv.packed_taps(taps),
        biases[1],
        fused_conv.packed_filters(last),
    ]
    results = RunningSequence(Sequence(7, ops, (10, 12)))(x, *packed, torch.ones(*shape[:2], 1, 1))
    close(results[0], expected)
    close(results[1], expected * expected.mean([2, 3], keepdim=True))


PAIRS = [
    ((1, 8, 90, 47), 96, 3, 1),
    ((2, 8, 57, 64), 100, 3, 2),
    ((1, 5, 61, 80), 90, 5, 1, "hardswish"),
    ((1, 8, 200, 130), 24, 5, 2),
    ((1, 8, 300, 300), 16, 7, 1),
]


@built
@pytest.mark.parametrize("case", PAIRS, ids=str)
def test_a_depthwise_convolution_reads_lines_as_they_are_made(case: tuple[Any, ...], threads: int) -> None:
    check_pair(*case)


def test_memory_between_ops_is_used_again() -> None:
    memory = _Memory()
    first, second = memory.take(100, 1), memory.take(20, 3)
    memory.free_before(2)
    assert (first, second, memory.take(50, 2), memory.take(64, 2), memory.size) == (0, 4 * 112, 0, 4 * 144, 208)


@built
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_nan_stays_one_and_infinities_are_those_of_the_formula(name: str) -> None:
    activation, plain = ACTIVATIONS[name]
    x = (
        torch.tensor([float("nan"), inf, -inf, 1e30, -1e30, 90.0, -90.0, 0.0, -0.0, 1e-30, -3.0, 3.0, 5.0])
        .view(1, -1, 1, 1)
        .repeat(1, 1, 3, 3)
    )
    channels = x.shape[1]
    taps = torch.ones(channels, 1, 3, 3) * torch.tensor([0.0, 1.0, 0.0]).view(3, 1) * torch.tensor([0.0, 1.0, 0.0])
    inner = x[:, :, :1, :1].contiguous(
        memory_format=LAST
    )  # one tap alone is inside, so that nothing is multiplied by 0
    made = run_one(
        fused_conv.depthwise,
        inner,
        fused_conv.packed_taps(taps),
        None,
        (3, 3, 1, 1, 1, 1),
        (channels, 1, 1),
        activation,
    )
    torch.testing.assert_close(made, plain(inner.double()).float(), rtol=2e-6, atol=2e-7, equal_nan=True)
    rows = x[0, :, 0, :1].contiguous()
    torch.testing.assert_close(
        run_one(fused_conv.linear, rows, fused_conv.packed_filters(torch.ones(1, 1)), None, None, 1, activation),
        plain(rows.double()).float(),
        rtol=2e-6,
        atol=2e-7,
        equal_nan=True,
    )


@built
def test_a_nan_of_a_picture_stays_one_by_winograd() -> None:
    x, weight = picture(1, 16, 8, 8), torch.randn(16, 16, 3, 3)
    x[0, 3, 5, 5] = float("nan")
    made = run_one(
        fused_conv.winograd, x, fused_conv.winograd_filters(weight), None, None, (1, 1), (16, 8, 8), ("clip", 0.0, inf)
    )
    assert made[0, :, 4:7, 4:7].isnan().all() and not made[0, :, :4].isnan().any()


def test_without_the_extensions_filters_stay_and_aten_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "conv", None)
    weight = torch.randn(16, 16, 3, 3)
    assert (
        fused_conv.packed_filters(weight) is weight
        and fused_conv.winograd_filters(weight) is weight
        and fused_conv.packed_taps(weight) is weight
    )
    check_convolution(*CONVOLUTIONS[0])
    check_depthwise((1, 5, 6, 6), 3, 2, (1, 1))
    x, bias = picture(1, 16, 6, 6), torch.randn(16)
    close(
        run_one(fused_conv.winograd, x, weight, bias, x, (1, 1), (16, 6, 6), NONE),
        F.conv2d(x.double(), weight.double(), bias.double(), 1, 1) + x,
    )
    close(
        run_one(fused_conv.linear, x.view(16, 36), torch.ones(3, 36), None, None, 3, NONE),
        x.view(16, 36).double() @ torch.ones(36, 3).double(),
    )


@built
def test_other_shapes_than_the_filters_are_for_are_refused() -> None:
    x, weight = picture(1, 16, 6, 6), torch.randn(16, 16, 3, 3)
    message = "the packed filters or the residual do not fit what is given, of shape"
    with pytest.raises(RuntimeError, match=message):
        run_one(
            fused_conv.convolution,
            picture(1, 15, 6, 6),
            fused_conv.packed_filters(weight),
            None,
            None,
            (3, 3, 1, 1, 1, 1, 1, 1),
            (16, 6, 6),
            NONE,
        )
    with pytest.raises(RuntimeError, match=message):
        run_one(
            fused_conv.winograd,
            x,
            fused_conv.winograd_filters(weight),
            None,
            picture(1, 16, 5, 5),
            (1, 1),
            (16, 6, 6),
            NONE,
        )
    with pytest.raises(RuntimeError, match=message):
        run_one(
            fused_conv.depthwise,
            picture(1, 15, 6, 6),
            fused_conv.packed_taps(weight[:, :1]),
            None,
            (3, 3, 1, 1, 1, 1),
            (16, 6, 6),
            NONE,
        )
    with pytest.raises(RuntimeError, match=message):
        run_one(fused_conv.linear, torch.randn(3, 9), fused_conv.packed_filters(torch.randn(4, 8)), None, None, 4, NONE)


@built
def test_a_processor_without_avx512_has_the_same_numbers() -> None:
    program = (
        "import sys; sys.path.insert(0, 'tests/single'); import torch; import test_predict_kernels as t\n"
        "torch.manual_seed(3)\n"
        "for case in t.CONVOLUTIONS: t.check_convolution(*case)\n"
        "for name in t.ACTIVATIONS: t.check_convolution((1, 20, 6, 5), 37, (1, 1), (1, 1), (0, 0), (1, 1), name)\n"
        "for case in t.POOLS: t.check_pool(*case)\n"
        "for case in t.STEMS: t.check_stem(*case)\n"
        "for case in t.PAIRS: t.check_pair(*case)\n"
        "for across, stride in t.fused_conv.TAPS: t.check_depthwise((2, 37, 9, 16), across, stride, (across // 2, "
        "across // 2))\n"
        "print('same')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "ATEN_CPU_CAPABILITY": "avx2"},
        check=False,
    )
    assert done.stdout == "same\n", done.stderr
