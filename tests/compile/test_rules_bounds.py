"""Where a split may go and where it may not: groups of channels, indices and labels of other ranks, parts of random
tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lockstep import rank_graph
from made_calls import signed
from torch import Tensor
from traced import Executed, made

from oneflow.engine.core.sbp import split
from oneflow.engine.ops.kernels import part
from oneflow.engine.sharding.rules.rule import Signature
from oneflow.engine.sharding.rules.table import RULES

aten = torch.ops.aten


def convolved(channels: int, out: int, groups: int) -> Executed:
    x, weight = signed(1, channels, 3), signed(out, channels // groups, 3)
    return made(aten.convolution.default, x, weight, None, [1], [1], [1], False, [0], groups)


def channel_splits(one: Executed, parts: int) -> list[Signature]:
    return [
        s for s in RULES[one.op].signatures(one.call(parts)) if s.inputs[0] is split(1) and s.outputs[0] is split(1)
    ]


@pytest.mark.parametrize("channels, out, groups, parts", [(8, 12, 4, 2), (8, 12, 4, 4), (5, 5, 5, 3), (6, 12, 6, 3)])
def test_channels_are_split_between_groups(channels: int, out: int, groups: int, parts: int) -> None:
    assert len(channel_splits(convolved(channels, out, groups), parts)) == 1


@pytest.mark.parametrize("channels, out, groups, parts", [(8, 12, 4, 3), (8, 8, 2, 4), (5, 10, 5, 2), (4, 4, 1, 2)])
def test_a_group_of_channels_is_never_cut(channels: int, out: int, groups: int, parts: int) -> None:
    assert channel_splits(convolved(channels, out, groups), parts) == []


def test_each_rank_is_told_how_many_groups_it_has() -> None:
    one = convolved(5, 5, 5)
    chosen = channel_splits(one, 3)
    calls = [list(rank_graph(one.call(3), chosen, (3,), position).nodes)[-2] for position in range(3)]
    assert [call.args[-1] for call in calls] == [2, 2, 1]


def test_each_rank_is_told_the_groups_and_sizes_of_its_group_norm() -> None:
    one = made(aten.native_group_norm.default, signed(2, 8, 3), None, None, 2, 8, 3, 4, 1e-5)
    call = list(rank_graph(one.call(2), channel_splits(one, 2), (2,), 1).nodes)[-2]
    assert call.args[3:7] == (2, 4, 3, 2)


X = signed(2, 4)
READS_AND_WRITES: dict[str, Callable[[Tensor], object]] = {
    "gather": lambda i: part.gather(X, 1, i.expand(2, 1), 4, 8),
    "scatter_add": lambda i: part.scatter_add(X, 1, i.expand(2, 1), X, 4, 8),
    "index_select": lambda i: part.index_select(X, 1, i, 4, 8),
    "index_add": lambda i: part.index_add(X, 1, i, X[:, :1], 1.0, 4, 8),
    "index": lambda i: part.index(X.t(), [i], [4], [8]),
    "index_put": lambda i: part.index_put(X.t(), [i], X[:, :1].t(), True, [4], [8]),
    "nll_loss": lambda i: part.nll_loss(X, i.expand(2), -100, 4, 8),
    "nll_loss_gradient": lambda i: part.nll_loss_gradient(X[:, 0], X, i.expand(2), -100, 4, 8),
}


@pytest.mark.parametrize("op", READS_AND_WRITES)
def test_an_index_that_no_rank_has_fails_on_every_rank(op: str) -> None:
    for wrong in (8, -9):
        with pytest.raises(IndexError, match="is out of bounds for a dimension of size 8"):
            READS_AND_WRITES[op](torch.tensor([wrong]))
    for right in (0, 7):
        READS_AND_WRITES[op](torch.tensor([right]))


def test_no_index_is_no_error() -> None:
    assert part.index_select(X, 1, torch.tensor([], dtype=torch.int64), 4, 8).shape == (2, 0)


def test_what_other_ranks_hold_is_zero_even_beside_infinities() -> None:
    x = torch.full((2, 3), torch.inf)
    assert part.index_select(x, 0, torch.tensor([0, 3]), 2, 4).tolist() == [[0.0] * 3, [torch.inf] * 3]
    assert part.gather(x, 1, torch.tensor([[0], [0]]), 3, 6).tolist() == [[0.0], [0.0]]


STEP = torch.tensor([3])
PARTS = [
    ([10], [3], [4]),
    ([4000], [1000], [2500]),
    ([6, 5], [2, 0], [3, 5]),
    ([6, 5], [0, 1], [6, 3]),
    ([6, 5], [4, 1], [1, 2]),
    ([4, 5, 6], [1, 0, 0], [2, 5, 6]),
    ([4, 5, 6], [0, 2, 0], [4, 2, 6]),
    ([4, 5, 6], [1, 2, 3], [2, 3, 2]),
    ([4, 5, 6], [1, 2, 3], [1, 1, 1]),
    ([4, 5, 6], [0, 0, 0], [4, 5, 6]),
    ([4, 5, 6], [1, 2, 0], [2, 0, 6]),
    ([], [], []),
]


@pytest.mark.parametrize("whole, start, shape", PARTS)
def test_random_bits_of_a_part_are_a_part_of_the_bits(whole: list[int], start: list[int], shape: list[int]) -> None:
    bits = torch.ops.oneflow.random_bits(whole, 42, STEP)
    expected = bits[tuple(slice(first, first + size) for first, size in zip(start, shape))]
    found = torch.ops.oneflow.random_bits_part(whole, start, shape, 42, STEP)
    assert found.dtype == torch.int32 and torch.equal(found, expected)


def test_a_part_of_random_bits_far_into_a_large_tensor_wraps_as_the_whole_does() -> None:
    whole = [70000, 30000]
    row = torch.ops.oneflow.random_bits_part(whole, [69999, 0], [1, 30000], 42, STEP)
    cut = torch.ops.oneflow.random_bits_part(whole, [69998, 29000], [2, 1000], 42, STEP)
    assert torch.equal(cut[1], row[0, 29000:])
