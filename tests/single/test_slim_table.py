"""slim's networks have the parameters, end points, L2 terms and features of the originals, and learn, are saved, loaded
and exported."""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import onnxruntime
import pytest
import torch
from slim_table import ROWS, SHAPES

import oneflow as flow
from flowvision.models import slim
from flowvision.models.slim import SlimNetwork

NAMES = list(ROWS)
# The smallest pictures that the pads and kernels of a family allow; others have convolutions that only slim's own size
# fits.
SMALL = {
    "lenet": 28,
    "cifarnet": 32,
    "inception": 112,
    "resnet": 33,
    "mobilenet": 33,
    "nasnet_cifar": 16,
    "nasnet": 97,
    "pnasnet": 97,
}
# Of the others a sibling is exported: their ops are the same, and files of half a gigabyte prove no more.
EXPORTED = (
    "lenet",
    "cifarnet",
    "alexnet_v2",
    "inception",
    "resnet_v1_50",
    "resnet_v2_50",
    "mobilenet_v1_025",
    "mobilenet_v2_035",
    "nasnet_mobile",
    "pnasnet_mobile",
)


# The smallest of each family, in every run of the tests; SLIM_ALL=1 has all 32, which takes ten minutes more.
LEARNING = (
    NAMES
    if os.environ.get("SLIM_ALL")
    else [
        "lenet",
        "cifarnet",
        "alexnet_v2",
        "inception_v1",
        "inception_v2",
        "inception_v3",
        "resnet_v1_50",
        "resnet_v2_50",
        "mobilenet_v1_025",
        "mobilenet_v2_035",
        "nasnet_cifar",
    ]
)


@cache
def built(name: str) -> SlimNetwork:
    with torch.device("meta"):
        return slim.create_model(name)


def parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_table_names_every_network():
    assert slim.list_models() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_a_network(name):
    row, net = ROWS[name], built(name)
    assert (net.default_image_size, net.default_weight_decay) == (row.size, row.decay)
    assert parameters(net) == row.at_1000
    assert sum(value.size for key, value in arrays(net) if "/moving_" in key) == row.statistics
    assert (
        sum(p.numel() for key, p in net.named_parameters() if key.startswith("aux_") or ".AuxLogits." in key)
        == row.auxiliary
    )
    assert len(net.regularized_variables()) == row.terms


def arrays(net: SlimNetwork):
    for key, tensor in net.state_dict().items():
        yield key.replace(".", "/"), np.empty(tuple(tensor.shape), np.bool_)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_parameters_follow_the_number_of_classes(name):
    row = ROWS[name]
    with torch.device("meta"):
        assert [parameters(slim.create_model(name, classes)) for classes in (10, 1001)] == [row.at_10, row.at_1001]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_network_built_for_evaluation_and_one_for_features(name):
    row = ROWS[name]
    with torch.device("meta"):
        assert parameters(slim.create_model(name, is_training=False)) == row.evaluated
        features, _ = slim.create_model(name, None)(torch.empty(2, 3, row.size, row.size))
    assert tuple(features.shape[1:]) == row.features


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_end_points(name):
    net = built(name)
    logits, end_points = net(torch.empty(2, 3, ROWS[name].size, ROWS[name].size, device="meta"))
    assert logits.shape == (2, 1000)
    for point, shape in SHAPES[name].items():
        found = tuple(end_points[point.replace("...", name)].shape[1:])
        assert (found if len(found) == 1 else (*found[1:], found[0])) == shape, point


def small_net(name: str) -> tuple[SlimNetwork, torch.Tensor]:
    size = next((size for prefix, size in SMALL.items() if name.startswith(prefix)), ROWS[name].size)
    flow.manual_seed(0)
    return slim.create_model(name, 10, image_size=size), torch.randn(2, 3, size, size)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNING)
def test_a_network_learns_is_saved_loaded_and_exported(name, tmp_path):
    net, x = small_net(name)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    before = {key: value.detach().clone() for key, value in net.named_parameters()}
    logits, end_points = net(x)
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([1, 2])) + net.regularization_loss()
    if "AuxLogits" in end_points:
        loss = loss + 0.4 * torch.nn.functional.cross_entropy(end_points["AuxLogits"], torch.tensor([1, 2]))
    loss.backward()
    optimizer.step()
    still = [
        key
        for key, value in net.named_parameters()
        if value.grad is None or not torch.isfinite(value.grad).all() or torch.equal(value, before[key])
    ]
    # A dead unit has no gradient; a variable that nothing reads has none either, and there is none.
    assert all(net.get_parameter(key).grad is not None for key in still) and len(still) < len(before) / 4
    del before

    net.eval()
    with torch.no_grad():
        expected = net(x)[0].numpy()
    slim.save_slim_checkpoint(net, tmp_path / "model.ckpt")
    again, _ = small_net(name)
    again.eval().load_slim_variables(slim.load_slim_checkpoint(tmp_path / "model.ckpt"))
    with torch.no_grad():
        assert np.array_equal(again(x)[0].numpy(), expected)

    if not name.startswith(EXPORTED):
        return
    flow.onnx.export(Logits(again).eval(), x, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (scores,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert np.allclose(scores, expected, rtol=1e-3, atol=1e-3 * max(1.0, np.abs(expected).max()))


class Logits(torch.nn.Module):
    def __init__(self, net: SlimNetwork) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)[0]
