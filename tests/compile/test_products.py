"""Large products whose first factor has contiguous rows are computed by oneDNN, where that is faster; gradients of
weights are not."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.passes import products
from oneflow.engine.passes.products import SIZE, multiply_by_onednn
from oneflow.engine.step.codegen import generate

aten = torch.ops.aten
ONEDNN = torch.ops.mkldnn._linear_pointwise.default
ROWS, WEIGHT, BIAS = (
    torch.linspace(-1.0, 1.0, 130 * 70).reshape(130, 70),
    torch.linspace(-2.0, 1.0, 50 * 70).reshape(50, 70),
    torch.linspace(0.0, 1.0, 50),
)

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


def targets(function, *inputs: torch.Tensor, monkeypatch, faster: bool = True, size: int = 1) -> list[object]:
    """What a function's graph calls after the pass; its values must be those of before."""
    monkeypatch.setattr(products, "_is_faster_here", lambda: faster)
    monkeypatch.setattr(products, "SIZE", size)
    module = make_fx(function, tracing_mode="fake")(*inputs)
    multiply_by_onednn(module.graph)
    torch.testing.assert_close(generate(module.graph, "test").call(*inputs), function(*inputs), rtol=1e-5, atol=1e-4)
    return [node.target for node in module.graph.nodes if node.op == "call_function"]


def test_a_layer_and_the_gradient_of_its_input(monkeypatch):
    def layer(x, w, b):
        made = aten.addmm.default(b, x, w.t())
        return made, aten.mm.default(made, w)

    assert targets(layer, ROWS, WEIGHT, BIAS, monkeypatch=monkeypatch).count(ONEDNN) == 2


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda g, x: aten.mm.default(g.t(), x), (ROWS, ROWS)),  # the gradient of a weight
        (lambda b, x, w: aten.addmm.default(b, x, w.t(), beta=0.5), (BIAS, ROWS, WEIGHT)),
        (lambda b, x, w: aten.addmm.default(b, x, w.t()), (torch.ones(130, 50), ROWS, WEIGHT)),  # no bias, but a matrix
        (lambda x, w: aten.mm.default(x, w.t()), (ROWS.double(), WEIGHT.double())),
        (lambda x, w: aten.mm.default(x, w.t()), (ROWS[:1], WEIGHT)),
    ],
    ids=range(5),
)
def test_other_products_stay(function, inputs, monkeypatch):
    assert ONEDNN not in targets(function, *inputs, monkeypatch=monkeypatch)


@pytest.mark.parametrize("how", [{"faster": False}, {"size": SIZE}], ids=["other processors", "small"])
def test_where_it_is_not_faster_products_stay(how, monkeypatch):
    assert ONEDNN not in targets(lambda x, w: aten.mm.default(x, w.t()), ROWS, WEIGHT, monkeypatch=monkeypatch, **how)
