"""How much memory the values of a section take at once."""

from __future__ import annotations

import torch
from footprint import bytes_at_once
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.passes.inplace import write_over

X = torch.zeros(256, 4)  # 4 KiB


def kibibytes(function, in_place: bool = False) -> float:
    graph = make_fx(function, tracing_mode="fake")(X).graph
    if in_place:
        write_over(graph)
    return bytes_at_once(graph) / 1024


def test_arguments_do_not_count_and_values_go_with_their_last_use():
    assert kibibytes(lambda x: x + 1.0) == 4
    assert kibibytes(lambda x: torch.exp(torch.exp(torch.exp(x)))) == 8
    assert kibibytes(lambda x: torch.exp(x) + (torch.exp(x * 2.0) + torch.exp(x * 3.0))) == 16


def test_views_and_writes_take_nothing():
    assert kibibytes(lambda x: torch.exp(x).t()[1:3]) == 4
    assert kibibytes(lambda x: torch.relu(x * 2.0 + 1.0), in_place=True) == 4


def test_each_result_of_an_op_counts_by_itself():
    assert kibibytes(lambda x: torch.sort(x, 0)[0]) == 4 + 8  # values, and the numbers of rows in int64
