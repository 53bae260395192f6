"""Batch norm of a batch in parts: the statistics, the moving statistics and the gradients are those of the whole
batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oneflow.engine.ops.kernels import batch_statistics

aten = torch.ops.aten
COUNTS = [5, 1, 2]


def parts(x: Tensor) -> list[Tensor]:
    return list(x.split(COUNTS))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def shared_statistics(x: Tensor) -> Tensor:
    """As ranks compute it that hold unequal parts of the batch."""
    sums = torch.stack([batch_statistics.sums_of_part(part) for part in parts(x)]).sum(0)
    return batch_statistics.from_sums(sums, x.numel() // x.shape[1], x)


@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5), (8, 3, 4, 5)])
def test_statistics_of_unequal_parts_combine_to_those_of_the_batch(shape: tuple[int, ...]) -> None:
    x = drawn(*shape)
    variance, mean = torch.var_mean(x, [0, *range(2, x.dim())], correction=0)
    torch.testing.assert_close(shared_statistics(x), torch.stack([mean, variance]))


def test_a_small_variance_far_from_zero_does_not_cancel() -> None:
    x = drawn(8, 3, 6, 6).double() * 0.01 + 1000
    _, variance = shared_statistics(x.float())
    torch.testing.assert_close(variance.double(), x.float().double().var([0, 2, 3], correction=0), rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_batch_in_parts_is_normalised_as_a_whole(dtype: torch.dtype) -> None:
    x, weight, bias = drawn(8, 3, 4, 5).to(dtype), torch.rand(3) + 0.5, torch.rand(3)
    parameters = [weight, bias] if dtype != torch.float64 else [weight.double(), bias.double()]
    moving = [torch.zeros_like(parameters[0]), torch.ones_like(parameters[0])]
    expected_moving = [m.clone() for m in moving]
    expected = aten.native_batch_norm(x, *parameters, *expected_moving, True, 0.3, 1e-3)
    statistics = shared_statistics(x)
    found = []
    for part in parts(x):
        mine = [m.clone() for m in moving]
        found.append(batch_statistics.normalise(part, *parameters, statistics, 8 * 4 * 5, *mine, 0.3, 1e-3))
        torch.testing.assert_close(mine, expected_moving)
    torch.testing.assert_close(torch.cat([f[0] for f in found]), expected[0])
    for _, mean, inverse_deviation in found:
        torch.testing.assert_close((mean, inverse_deviation), expected[1:])


@pytest.mark.parametrize("parameters", ["float32", "half", "none"])
def test_parameters_of_any_precision_go_with_a_half_precision_batch(parameters: str) -> None:
    x = drawn(8, 3, 4).bfloat16()
    weight = {"float32": torch.rand(3), "half": torch.rand(3).bfloat16(), "none": None}[parameters]
    expected = aten.native_batch_norm(x, weight, weight, None, None, True, 0.3, 1e-3)
    statistics = shared_statistics(x)
    found = [
        batch_statistics.normalise(part, weight, weight, statistics, 32, None, None, 0.3, 1e-3) for part in parts(x)
    ]
    torch.testing.assert_close(torch.cat([f[0] for f in found]), expected[0], rtol=1e-2, atol=1e-2)
    assert [t.dtype for t in found[0]] == [t.dtype for t in expected]
    gradient = drawn(8, 3, 4).flip(0).bfloat16()
    wanted = aten.native_batch_norm_backward(
        gradient, x, weight, None, None, *expected[1:], True, 1e-3, [True, True, True]
    )
    for whole, part in zip(wanted, backward(gradient, x, weight, *expected[1:])):
        torch.testing.assert_close(part, whole, rtol=3e-2, atol=3e-2)


def backward(
    gradient: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, deviation: Tensor
) -> tuple[Tensor | None, ...]:
    """The gradients that ranks compute from the sums of all; those of x put together."""
    pairs = list(zip(parts(gradient), parts(x)))
    sums = sum(batch_statistics.gradient_sums(g, part, mean, deviation) for g, part in pairs)
    count, mask = x.numel() // x.shape[1], [True, True, True]
    found = [batch_statistics.gradients(g, part, weight, mean, deviation, sums, count, mask) for g, part in pairs]
    return torch.cat([f[0] for f in found]), *found[0][1:]


def test_gradients_of_a_batch_in_parts_are_those_of_the_batch() -> None:
    x, weight, gradient = drawn(8, 3, 4, 5), torch.rand(3) + 0.5, drawn(8, 3, 4, 5).flip(0)
    _, *saved = aten.native_batch_norm(x, weight, None, None, None, True, 0.3, 1e-3)
    expected = aten.native_batch_norm_backward(gradient, x, weight, None, None, *saved, True, 1e-3, [True, True, True])
    torch.testing.assert_close(backward(gradient, x, weight, *saved), expected)


def test_gradients_that_nobody_wants_are_not_made() -> None:
    x, ones = drawn(8, 3), torch.ones(3)
    sums = batch_statistics.gradient_sums(x, x, ones, ones)
    assert batch_statistics.gradients(x, x, None, ones, ones, sums, 8, [False, False, False]) == (None, None, None)
