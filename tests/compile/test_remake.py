"""Large results of layer norms are made again for the gradient of a weight, with the same bits, where what the norm was
given is kept anyway."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from footprint import bytes_at_once
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.passes import remake
from oneflow.engine.program.notes import LocalNote, set_local_note
from oneflow.engine.step.codegen import generate

aten = torch.ops.aten
X, W, SCALE = torch.randn(6, 8, 16), torch.randn(32, 16), torch.rand(16)


def layers(x, w, scale, reads_late=False, is_early=False, writes=False):
    """A norm and a layer behind it, forward and backward, in autograd's order; the hidden values stay until then."""
    given = x * 2.0
    normal, mean, rstd = aten.native_layer_norm(given, [16], scale, None, 1e-5)
    hidden = torch.tanh(normal.view(48, 16).mm(w.t()))
    if writes:
        given.mul_(2.0)
    gradient = hidden + 1.0  # the backward pass begins
    of_w = gradient.t().mm(normal.view(48, 16))
    of_normal = gradient.mm(w).view(6, 8, 16)
    of_x, of_scale, _ = aten.native_layer_norm_backward(
        of_normal, x if is_early else given, [16], mean, rstd, scale, None, [True, True, False]
    )
    return (of_w, of_x, of_scale, *([normal + 1.0] if reads_late else []))


def norms(monkeypatch, function, least: int = 1) -> int:
    """How many norms there are after the pass; values must have the bits of before."""
    monkeypatch.setattr(remake, "BYTES", least)
    graph = make_fx(lambda x, w, scale: function(x, w, scale), tracing_mode="fake")(X, W, SCALE).graph
    begun = False
    for node in graph.nodes:
        if node.op == "call_function":
            begun = begun or (node.target is aten.add.Tensor)
            set_local_note(node, LocalNote(section="backward" if begun else "forward"))
    before = bytes_at_once(graph)
    remake.remake_norms(graph)
    graph.lint()
    assert bytes_at_once(graph) <= before
    for ours, plain in zip(generate(graph, "test").call(X, W, SCALE), function(X, W, SCALE)):
        assert torch.equal(ours, plain)
    return sum(node.target is aten.native_layer_norm.default for node in graph.nodes)


def test_a_norm_is_made_again_for_the_gradient_of_a_weight(monkeypatch):
    assert norms(monkeypatch, layers) == 2


@pytest.mark.parametrize("how", ["reads_late", "is_early", "writes"])
def test_not_where_it_is_read_later_or_what_it_was_given_is_gone_or_changed(monkeypatch, how):
    assert norms(monkeypatch, lambda x, w, scale: layers(x, w, scale, **{how: True})) == 1


def test_small_ones_are_kept(monkeypatch):
    assert norms(monkeypatch, layers, 2**20) == 1


def test_it_trains_a_transformer_with_the_same_bits(monkeypatch):
    import oneflow as flow

    def losses() -> list[float]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.LayerNorm(16),
            torch.nn.Linear(16, 32),
            torch.nn.GELU(),
            torch.nn.LayerNorm(32),
            torch.nn.Linear(32, 4),
        )

        class Train(flow.nn.Graph):
            def __init__(self) -> None:
                super().__init__()
                self.model = model
                self.add_optimizer(flow.optim.AdamW(model.parameters(), lr=0.05))

            def build(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                loss = F.cross_entropy(self.model(x), y)
                loss.backward()
                return loss

        graph, x, y = Train(), torch.randn(12, 16), torch.arange(12) % 4
        found = [float(graph(x, y)) for _ in range(4)]
        (step,) = graph._compiled.values()
        made.append(step.executor.source.count("\n"))
        return found

    made: list[int] = []
    plain = losses()
    monkeypatch.setattr(remake, "BYTES", 1)
    assert losses() == plain and made[1] > made[0]
