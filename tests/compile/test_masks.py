"""The mask of relu6 is taken of what it made, in the values of before, and only while that is there."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.passes.masks import mask_by_results
from oneflow.engine.step.codegen import generate

aten = torch.ops.aten


def mask(gradient, given, floor=0.0, ceiling=6.0):
    return aten.hardtanh_backward.default(gradient, given, floor, ceiling)


def read_by_the_mask(function) -> str:
    """The op whose result the mask reads after the pass; the values must be those of before."""
    torch.manual_seed(2)
    x, gradient = torch.randn(40) * 6, torch.randn(40)
    x[:3] = torch.tensor([0.0, 6.0, float("nan")])
    module = make_fx(function, tracing_mode="fake")(x.clone(), gradient)
    mask_by_results(module.graph)
    module.graph.lint()
    found = generate(module.graph, "test").call(x.clone(), gradient.clone())
    torch.testing.assert_close(found, function(x.clone(), gradient.clone()), rtol=0, atol=0, equal_nan=True)
    (node,) = [node for node in module.graph.nodes if node.target is aten.hardtanh_backward.default]
    return node.args[1].name


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: (F.relu6(v := x * 2.0), mask(g, v)),
        lambda x, g: (v := x * 2.0, kept := v.clone(), aten.hardtanh_.default(v, 0.0, 6.0), mask(g, kept))[2:],
    ],
    ids=["a new result", "in place"],
)
def test_it_reads_the_result(function):
    assert read_by_the_mask(function).startswith("hardtanh")


@pytest.mark.parametrize(
    "function",
    [
        lambda x, g: (F.hardtanh(v := x * 2.0, 0.0, 5.0), mask(g, v)),
        lambda x, g: (y := F.relu6(v := x * 2.0), y.add_(1.0), mask(g, v))[1:],
        lambda x, g: (v := x * 2.0, kept := v.clone(), v.add_(1.0), aten.hardtanh_.default(v, 0.0, 6.0), mask(g, kept))[
            3:
        ],
        lambda x, g: (v := x * 2.0, mask(g, v), F.relu6(v))[1:],
    ],
    ids=["other bounds", "the result is changed", "the input was changed", "the mask comes first"],
)
def test_it_is_left_alone(function):
    assert not read_by_the_mask(function).startswith("hardtanh")
