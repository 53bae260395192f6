"""A training step by fused kernels has the loss and the gradients of the ops that they stand for, whatever the network.

Networks of tests are so small that fusing their ops would not pay; here everything is fused that can be.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from graph_models import MODELS, seeded
from test_zoo_table import cheap, scores, stilled
from torch import Tensor
from zoo_table import CHEAP

import oneflow as flow
from oneflow.engine.passes import fused_loss, fused_norm, products

Network = tuple[torch.nn.Module, Tensor, Tensor]
# Their last batch norms see four numbers per channel, which may be nearly alike: rounding alone moves these gradients
# as far, compared with float64.
DELICATE = {"inception_v3": 1e-3, "mnasnet0_5": 3e-4, "efficientnet_b0": 2e-4}


class Train(flow.nn.Graph):
    def __init__(self, model: torch.nn.Module, fusion: str) -> None:
        super().__init__()
        self.model = model
        self.config.set_fusion(fusion)
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=1.0))

    def build(self, x: Tensor, y: Tensor) -> Tensor:
        loss = torch.nn.functional.cross_entropy(scores(self.model(x)), y)
        loss.backward()
        return loss


def away_from_kinks(model: torch.nn.Module) -> torch.nn.Module:
    """With no value near the places where a relu bends: there rounding decides about a whole gradient."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            torch.nn.init.constant_(module.weight, 0.2)
            torch.nn.init.constant_(module.bias, 1.0)
    return model


def of_the_zoo(name: str) -> Network:
    model, x = cheap(name)
    return away_from_kinks(stilled(model)), x, torch.arange(4)


def small(name: str) -> Network:
    (batch,) = MODELS[name].batches(1)
    return away_from_kinks(seeded(MODELS[name].model)), *batch


NETWORKS: dict[str, Callable[[], Network]] = {
    **{f"zoo {name}": partial(of_the_zoo, name) for name in CHEAP},
    **{f"small {name}": partial(small, name) for name in MODELS},
}


def step(make: Callable[[], Network], fusion: str) -> tuple[Tensor, dict[str, Tensor], set[str]]:
    """The loss of one step; by how much it moves each parameter, which is the gradient; and the functions that it
    calls."""
    model, x, y = make()
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    graph = Train(model, fusion)
    loss = graph(x, y)
    (compiled,) = graph._compiled.values()
    called = {
        str(node.target) for section in compiled.executor._program.sections.values() for node in section.graph.nodes
    }
    return loss, {name: before[name] - parameter.detach() for name, parameter in model.named_parameters()}, called


@pytest.fixture(autouse=True)
def everything_is_worth_fusing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, threshold in ((fused_norm, "BYTES"), (fused_loss, "BYTES"), (products, "SIZE")):
        monkeypatch.setattr(module, threshold, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_fused_step_has_the_loss_and_the_gradients_of_the_ops(name):
    (loss, expected, _), (fused_loss, found, _) = step(NETWORKS[name], "off"), step(NETWORKS[name], "native")
    near = DELICATE.get(name.removeprefix("zoo "), 1e-5)
    assert abs(fused_loss - loss) <= near * max(1.0, abs(loss))
    for key, gradient in expected.items():
        distance = (found[key] - gradient).abs().max()
        assert distance <= near * max(1.0, gradient.abs().max()), f"{key}: {distance:.1e}"


def test_small_networks_are_fused_here():
    by_ops, fused = (step(NETWORKS["small ResNet-18"], fusion)[2] for fusion in ("off", "native"))
    assert {"oneflow.batch_norm_relu.default", "oneflow.batch_norm_relu_backward.default"} <= fused - by_ops
