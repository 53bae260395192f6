"""The zoo's networks have the parameters that were published, and learn, compile, are saved, loaded and exported."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from zoo_table import CHEAP, PUBLISHED, SAME

import oneflow as flow
from flowvision.models import ModelCreator
from flowvision.models.refused import REFUSED

NAMES = ModelCreator.model_list()


def counted(name: str) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in ModelCreator.create_model(name).parameters())


def test_the_table_names_every_network_and_none_is_refused_and_there():
    assert sorted([*PUBLISHED, *SAME]) == sorted(NAMES)
    assert not set(NAMES) & set(REFUSED)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_as_published(name):
    assert counted(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", SAME)
def test_parameters_of_further_names(name):
    base, classes, width = SAME[name]
    assert counted(name) == PUBLISHED[base] + (classes - 1000) * (width + 1)


def cheap(name: str, classes: int = 4) -> tuple[torch.nn.Module, torch.Tensor]:
    options, size = CHEAP[name]
    flow.manual_seed(0)
    return ModelCreator.create_model(name, num_classes=classes, **options), torch.randn(4, 3, size, size)


def scores(result) -> torch.Tensor:
    return result if isinstance(result, torch.Tensor) else result[0]


def stilled(model: torch.nn.Module) -> torch.nn.Module:
    """Without dropout and drop-path, whose masks eager steps and graphs draw differently."""
    for module in model.modules():
        for name in ("p", "drop_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name, size", [("alexnet", 64), ("vgg11_bn", 32)])
def test_gradients_reach_every_parameter_of_the_large_ones(name, size):
    model = ModelCreator.create_model(name, num_classes=4)
    model(torch.randn(2, 3, size, size)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


class Train(flow.nn.Graph):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=0.01))

    def build(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(scores(self.model(x)), y)
        loss.backward()
        return loss


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_a_network_learns_compiles_is_saved_loaded_and_exported(name, tmp_path):
    (model, x), (twin, _) = cheap(name), cheap(name)
    y = torch.tensor([0, 1, 2, 3])
    stilled(model), stilled(twin)
    twin.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy(scores(twin(x)), y)
    loss.backward()
    optimizer.step()
    found = Train(model)(x, y)
    assert torch.allclose(found, loss, rtol=1e-4, atol=1e-5)
    expected, moved = twin.state_dict(), model.state_dict()
    for key, value in moved.items():
        assert torch.allclose(value.float(), expected[key].float(), rtol=1e-3, atol=1e-4), key

    model.eval()
    with torch.no_grad():
        before = model(x)
        assert before.shape == (4, 4)
    flow.save(model.state_dict(), tmp_path / "weights")
    again, _ = cheap(name)
    again.load_state_dict(flow.load(tmp_path / "weights"))
    with torch.no_grad():
        assert torch.equal(again.eval()(x), before)
    flow.onnx.export(again, x, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert np.allclose(out, before.numpy(), rtol=1e-3, atol=1e-3 * max(1.0, before.abs().max().item()))
