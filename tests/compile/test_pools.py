"""The backward pass of a max pool keeps what was pooled only where nothing else of its shape is kept."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from footprint import bytes_at_once
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.passes.pools import pool_by_shapes
from oneflow.engine.step.codegen import generate

aten = torch.ops.aten
POOL = aten.max_pool2d_with_indices_backward.default


def pooled_norm(x, weight, bias):
    return F.max_pool2d(F.batch_norm(x * 2, None, None, weight, bias, True), 3, 2, 1)


def pooled_relu_of_norm(x, weight, bias):
    return F.max_pool2d(torch.relu(F.batch_norm(x * 2, None, None, weight, bias, True)), 2)


def pooled_sum(x, weight, bias):
    return F.max_pool2d(x * 2 + bias.reshape(1, -1, 1, 1), 2)


def traced(net, memory: torch.memory_format) -> tuple[torch.fx.Graph, list[torch.Tensor]]:
    torch.manual_seed(0)
    arguments = [torch.randn(2, 8, 12, 12).contiguous(memory_format=memory), torch.rand(8), torch.rand(8)]

    def step(*given):
        leaves = [one.detach().requires_grad_() for one in given]
        made = net(*leaves)
        return torch.autograd.grad(made.square().sum(), leaves, allow_unused=True)

    return make_fx(step)(*arguments).graph, arguments


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_what_a_norm_was_given_stands_for_what_it_made(memory):
    graph, arguments = traced(pooled_norm, memory)
    expected, before = generate(graph, "job").call(*arguments), bytes_at_once(graph)
    pool_by_shapes(graph)
    (pool,) = [node for node in graph.nodes if node.target is POOL]
    assert pool.args[1].target is aten.mul.Tensor
    assert bytes_at_once(graph) < before
    for found, wanted in zip(generate(graph, "job").call(*arguments), expected):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("net", [pooled_relu_of_norm, pooled_sum])
def test_what_is_read_later_anyway_and_what_has_no_likeness_stay(net):
    graph, _ = traced(net, torch.contiguous_format)
    before = [node.args for node in graph.nodes if node.target is POOL]
    pool_by_shapes(graph)
    assert [node.args for node in graph.nodes if node.target is POOL] == before
