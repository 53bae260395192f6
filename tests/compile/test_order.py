"""The gradient of a weight is made before that of the layer's input, where that frees memory, and nowhere else."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.passes.order import weights_first
from oneflow.engine.step.codegen import generate

aten = torch.ops.aten
X, W1, W2 = torch.randn(64, 8), torch.randn(16, 8), torch.randn(4, 16)


def ordered(function, *inputs: torch.Tensor) -> list[tuple[int, ...]]:
    """The shapes of a function's products after the pass; its values must be those of before."""
    module = make_fx(function, tracing_mode="fake")(*inputs)
    nodes = len(module.graph.nodes)
    weights_first(module.graph)
    module.graph.lint()
    assert len(module.graph.nodes) == nodes
    torch.testing.assert_close(generate(module.graph, "test").call(*inputs), function(*inputs))
    return [tuple(node.meta["val"].shape) for node in module.graph.nodes if node.target is aten.mm.default]


def layers(x, w1, w2):
    """Forward and backward of two layers, in autograd's order."""
    hidden = torch.tanh(x.mm(w1.t()))
    gradient = hidden.mm(w2.t())
    of_hidden = gradient.mm(w2)
    of_w2 = gradient.t().mm(hidden)
    return of_w2, of_hidden * 2.0


def test_the_gradient_of_a_weight_comes_first():
    assert ordered(layers, X, W1, W2) == [(64, 16), (64, 4), (4, 16), (64, 16)]


def test_the_gradient_of_a_weight_that_is_multiplied_from_the_right_too():
    def backward(x, w1, w2):
        hidden, gradient = torch.tanh(x.mm(w1.t())), x.mm(w1.t())
        return gradient.mm(w1), hidden.t().mm(gradient)

    assert ordered(backward, X, W1, W2)[-2:] == [(16, 16), (64, 8)]


def test_what_is_read_again_frees_nothing():
    def backward(x, w1, w2):
        hidden = torch.tanh(x.mm(w1.t()))
        gradient = hidden.mm(w2.t())
        of_hidden = gradient.mm(w2)
        return gradient.t().mm(hidden), of_hidden, hidden + 1.0

    assert ordered(backward, X, W1, W2)[-2:] == [(64, 16), (4, 16)]


def test_an_input_of_the_step_is_not_freed():
    def backward(x, w1, w2):
        gradient = x.mm(w1.t())
        return gradient.mm(w1), gradient.t().mm(x)

    assert ordered(backward, X, W1, W2)[-2:] == [(64, 8), (16, 8)]


def test_no_write_is_passed():
    def backward(x, w1, w2):
        hidden = torch.tanh(x.mm(w1.t()))
        gradient = hidden.mm(w2.t())
        of_hidden = gradient.mm(w2)
        gradient.mul_(2.0)
        return gradient.t().mm(hidden), of_hidden

    assert ordered(backward, X, W1, W2)[-2:] == [(64, 16), (4, 16)]


def test_a_product_of_the_product_stays_behind_it():
    def backward(x, w1, w2):
        hidden = torch.tanh(x.mm(w1.t()))
        of_hidden = hidden.mm(hidden.t())
        return of_hidden.t().mm(hidden)

    assert ordered(backward, X, W1, W2)[-2:] == [(64, 64), (64, 16)]
