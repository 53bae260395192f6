"""The layers under slim's networks against their formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import oneflow as flow
from flowvision.models import slim
from flowvision.models.slim.initializers import he, truncated_normal, xavier
from flowvision.models.slim.layers import BatchNorm, Conv, Norm, SeparableConv, Style
from flowvision.models.slim.padding import SAME, SYMMETRIC, VALID, avg_pool, max_pool, same_padding
from oneflow.engine.core.errors import ArgumentError, NameError_


def windows(x: np.ndarray, kernel: int, stride: int) -> list[list[np.ndarray]]:
    """Every window of TensorFlow's SAME over one channel, cut where it leaves the picture."""
    out = [-(-n // stride) for n in x.shape]
    totals = [max((o - 1) * stride + kernel - n, 0) for o, n in zip(out, x.shape)]
    starts = [[at * stride - total // 2 for at in range(o)] for o, total in zip(out, totals)]
    return [[x[max(r, 0) : max(r + kernel, 0), max(c, 0) : max(c + kernel, 0)] for c in starts[1]] for r in starts[0]]


@pytest.mark.parametrize(
    "kernel, stride", [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (5, 2), (7, 2), (7, 3), (1, 2)]
)
@pytest.mark.parametrize("size", [(8, 8), (7, 9), (8, 7), (5, 12)])
def test_pools_with_same_padding(size, kernel, stride):
    x = np.random.default_rng(0).normal(size=size).astype(np.float32) - 3
    tensor = torch.from_numpy(x)[None, None]
    for pool, reduce in ((max_pool, np.max), (avg_pool, np.mean)):
        expected = np.array([[reduce(w) for w in row] for row in windows(x, kernel, stride)])
        assert np.allclose(pool(tensor, kernel, stride, SAME)[0, 0].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "kernel, stride, dilation", [(3, 1, 1), (3, 2, 1), (5, 2, 1), (7, 2, 1), (2, 2, 1), (3, 1, 2), (11, 4, 1)]
)
def test_convolution_with_same_padding(kernel, stride, dilation):
    rng = np.random.default_rng(0)
    for size in (11, 12, 13):
        x, layer = (
            rng.normal(size=(2, 3, size, size)),
            Conv(3, 4, (kernel, kernel), (stride, stride), dilation, True, Style(activation=None)),
        )
        layer.reset_parameters()
        weights, reach = layer.weights.detach().double().numpy(), (kernel - 1) * dilation + 1
        out = -(-size // stride)
        before = max((out - 1) * stride + reach - size, 0) // 2
        wide = np.zeros((2, 3, size + 4 * reach, size + 4 * reach))
        wide[:, :, reach : reach + size, reach : reach + size] = x
        expected = np.zeros((2, 4, out, out))
        for r in range(out):
            for c in range(out):
                top, left = r * stride - before + reach, c * stride - before + reach
                window = wide[:, :, top : top + reach : dilation, left : left + reach : dilation]
                expected[:, :, r, c] = np.einsum("bchw,ochw->bo", window, weights)
        assert np.allclose(layer(torch.from_numpy(x).float()).detach().numpy(), expected, atol=1e-4)


def test_the_odd_pixel_comes_last_and_symmetric_padding_ignores_the_size():
    assert [same_padding(224, 3, 2), same_padding(225, 3, 2), same_padding(112, 7, 2), same_padding(10, 1, 2)] == [
        (0, 1),
        (1, 1),
        (2, 3),
        (0, 0),
    ]
    layer = Conv(1, 1, (3, 3), (2, 2), 1, True, Style(activation=None, padding=SYMMETRIC))
    layer.reset_parameters()
    x = torch.randn(1, 1, 8, 8)
    assert torch.equal(layer(x), torch.nn.functional.conv2d(x, layer.weights, layer.biases, 2, 1))


def test_batch_norm_by_the_formula():
    norm = BatchNorm(3, Norm(decay=0.9, epsilon=0.001, scale=True))
    norm.reset_parameters()
    with torch.no_grad():
        norm.gamma.copy_(torch.tensor([1.0, 2.0, 3.0]))
        norm.beta.copy_(torch.tensor([0.5, 0.0, -0.5]))
    x = torch.randn(4, 3, 5, 5, dtype=torch.float64).float()
    mean, biased = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    column = (1, 3, 1, 1)
    expected = (x - mean.view(column)) / (biased.view(column) + 0.001).sqrt() * norm.gamma.view(
        column
    ) + norm.beta.view(column)
    assert torch.allclose(norm(x), expected, atol=1e-5)
    assert torch.allclose(norm.moving_mean, 0.1 * mean, atol=1e-6)
    assert torch.allclose(norm.moving_variance, 0.9 + 0.1 * biased * 100 / 99, atol=1e-6)
    norm.eval()
    kept = norm.moving_mean.clone()
    expected = (x - kept.view(column)) / (norm.moving_variance.view(column) + 0.001).sqrt() * norm.gamma.view(
        column
    ) + norm.beta.view(column)
    assert torch.allclose(norm(x), expected, atol=1e-5) and torch.equal(kept, norm.moving_mean)


def test_batch_norm_of_one_pixel_gives_its_beta():
    norm = BatchNorm(2, Norm(decay=0.9, epsilon=0.001, scale=False))
    norm.reset_parameters()
    x = torch.tensor([[[[5.0]], [[7.0]]]], requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert (
        y.flatten().tolist() == [0.0, 0.0]
        and x.grad.flatten().tolist() == [0.0, 0.0]
        and norm.beta.grad.tolist() == [1.0, 1.0]
    )
    assert torch.allclose(norm.moving_mean, torch.tensor([0.5, 0.7])) and torch.allclose(
        norm.moving_variance, torch.tensor([0.9, 0.9])
    )


def test_local_response_norm_of_cifarnet():
    from flowvision.models.slim.classic import _response_norm

    found = _response_norm(torch.arange(1.0, 13.0).view(1, 12, 1, 1)).flatten().tolist()
    assert np.allclose([*found[:3], found[-1]], [0.99544102, 1.98496628, 2.96546984, 11.51404095], atol=1e-6)


def test_initializers_by_their_moments():
    flow.manual_seed(0)
    for fill, fans, std, limit in (
        (xavier(), (300, 600), math.sqrt(6 / 900) / math.sqrt(3), math.sqrt(6 / 900)),
        (truncated_normal(0.1), (1, 1), 0.08796, 0.2),
        (he(), (50, 10**9), math.sqrt(1.3 * 2 / 50) * 0.8796, 2 * math.sqrt(1.3 * 2 / 50)),
        (he(by_fan_out=True), (10**9, 50), math.sqrt(1.3 * 2 / 50) * 0.8796, 2 * math.sqrt(1.3 * 2 / 50)),
    ):
        values = fill(torch.empty(200, 1000), fans)
        assert (
            abs(values.mean().item()) < 0.01 * std
            and abs(values.std().item() / std - 1) < 0.01
            and 0.98 * limit < values.abs().max() <= limit
        )


def test_variables_have_the_layout_of_tensorflow():
    conv = Conv(3, 5, (2, 4), (1, 1), 1, True, Style())
    conv.reset_parameters()
    weights = conv.weights.detach().numpy()
    assert (
        conv.to_slim("weights", weights).shape == (2, 4, 3, 5)
        and conv.to_slim("weights", weights)[1, 3, 2, 4] == weights[4, 2, 1, 3]
    )
    assert np.array_equal(conv.from_slim("weights", conv.to_slim("weights", weights)), weights)
    separable = SeparableConv(3, None, (2, 2), 4, (1, 1), True, Style())
    depthwise = np.arange(3 * 4 * 4.0).reshape(12, 1, 2, 2)
    there = separable.to_slim("depthwise_weights", depthwise)
    assert there.shape == (2, 2, 3, 4) and there[1, 0, 2, 3] == depthwise[2 * 4 + 3, 0, 1, 0]
    assert np.array_equal(separable.from_slim("depthwise_weights", there), depthwise)


def test_full_connections_flatten_height_width_channels():
    net = slim.create_model("lenet", 10, is_training=False)
    _, points = net(torch.randn(1, 3, 28, 28))
    assert torch.equal(points["Flatten"], points["pool2"].permute(0, 2, 3, 1).reshape(1, -1))


def test_regularization_is_half_the_sum_of_squares_of_what_slim_regularises():
    net = slim.create_model("cifarnet", 10)
    values = net.slim_variables()
    expected = (
        0.004 / 2 * sum((values[f"CifarNet/{name}/weights"].astype(np.float64) ** 2).sum() for name in ("fc3", "fc4"))
    )
    assert np.isclose(net.regularization_loss().item(), expected, rtol=1e-5)
    assert np.isclose(net.regularization_loss(0.4).item(), 100 * expected, rtol=1e-5)
    names = slim.create_model("inception_resnet_v2", 10, image_size=112).regularized_variables()
    assert sum(name.endswith("biases") for name in names) == 42
    assert not [
        name for name in slim.create_model("mobilenet_v1_025", 10).regularized_variables() if "depthwise" in name
    ]


def test_variables_go_out_and_come_in_and_keep_the_function():
    net, other = (slim.create_model("mobilenet_v1_025", 10, is_training=False, image_size=64) for _ in range(2))
    x = torch.randn(2, 3, 64, 64)
    values = net.slim_variables()
    assert {name: value.shape for name, value in values.items()}[
        "MobilenetV1/Conv2d_1_depthwise/depthwise_weights"
    ] == (3, 3, 8, 1)
    other.load_slim_variables({**values, "global_step": np.array(7)})
    assert torch.equal(net(x)[0], other(x)[0])
    kept = other.slim_variables()["MobilenetV1/Logits/Conv2d_1c_1x1/weights"]
    fresh = slim.create_model("mobilenet_v1_025", 10, is_training=False, image_size=64).slim_variables()
    other.load_slim_variables(fresh, exclude=("MobilenetV1/Logits",))
    assert np.array_equal(other.slim_variables()["MobilenetV1/Logits/Conv2d_1c_1x1/weights"], kept)
    assert np.array_equal(other.slim_variables()["MobilenetV1/Conv2d_0/weights"], fresh["MobilenetV1/Conv2d_0/weights"])


def test_loading_is_all_or_nothing_and_says_what_is_wrong():
    net = slim.create_model("lenet", 10)
    before, values = net.slim_variables(), slim.create_model("lenet", 10).slim_variables()
    short = {name: value for name, value in values.items() if name != "LeNet/fc3/weights"}
    with pytest.raises(
        ArgumentError, match="lenet has variables that are missing: LeNet/fc3/weights. Did you mean 'LeNet/fc4/weights'"
    ):
        net.load_slim_variables(short)
    with pytest.raises(
        ArgumentError,
        match=r"lenet has LeNet/fc4/weights of shape \[1024, 10\]; the value to load has \[1024, 7\]; another number of classes",
    ):
        net.load_slim_variables({**values, "LeNet/fc4/weights": np.zeros((1024, 7), np.float32)})
    with pytest.raises(
        ArgumentError,
        match="none of the 8 variables of lenet is there: it has LeNet/conv1/biases, and what was given begins with vgg_16/x",
    ):
        net.load_slim_variables({"vgg_16/x": np.zeros(1)})
    assert all(np.array_equal(value, before[name]) for name, value in net.slim_variables().items())


def test_names_and_options_are_checked():
    with pytest.raises(NameError_, match="slim has no network 'resnet_v1_5'. Did you mean 'resnet_v1_50'"):
        slim.create_model("resnet_v1_5")
    with pytest.raises(ArgumentError, match="lenet has no option 'dropout_keep'. Did you mean 'dropout_keep_prob'"):
        slim.create_model("lenet", dropout_keep=0.4)
    with pytest.raises(
        ArgumentError, match=r"inception_v3 cannot be built for pictures of 64x64 \(.*; slim's size is 299"
    ):
        slim.create_model("inception_v3", image_size=64)
    with pytest.raises(ArgumentError, match="num_classes is a number of classes, or None or 0 for features; got -1"):
        slim.create_model("lenet", -1)
    with pytest.raises(ArgumentError, match="output_stride is 4, 8, 16 or 32, got 7"):
        slim.create_model("resnet_v1_50", output_stride=7)
    with pytest.raises(ArgumentError, match="output_stride is 8 or 16, got 4"):
        slim.create_model("inception_resnet_v2", output_stride=4)
    with pytest.raises(ArgumentError, match="with output_stride 8 the network ends at PreAuxLogits"):
        slim.create_model("inception_resnet_v2", output_stride=8)
    with pytest.raises(ArgumentError, match="activation is relu or relu6, got 'gelu'"):
        slim.create_model("inception_resnet_v2", activation="gelu")
    with pytest.raises(ArgumentError, match="depth_multiplier is greater than 0, got -1"):
        slim.create_model("mobilenet_v2", depth_multiplier=-1)
    with pytest.raises(ArgumentError, match="lenet has no schedule that follows the global step"):
        slim.create_model("lenet").set_global_step(3)


def shape_of(name: str, point: str, size: int, **options) -> tuple[int, ...]:
    with torch.device("meta"):
        net = slim.create_model(name, None, image_size=size, **options)
        return tuple(net(torch.empty(1, 3, size, size))[1][point].shape[1:])


@pytest.mark.slow
def test_options_change_what_they_say():
    assert shape_of("resnet_v1_50", "resnet_v1_50/block4", 224, output_stride=8) == (2048, 28, 28)
    assert shape_of("resnet_v1_50", "resnet_v1_50/block1", 224, store_non_strided_activations=True) == (256, 56, 56)
    assert shape_of("resnet_v1_50", "resnet_v1_50/block4", 224, store_non_strided_activations=True) == (2048, 7, 7)
    assert shape_of("inception_resnet_v2", "PreAuxLogits", 299, output_stride=8) == (1088, 33, 33)
    assert shape_of("inception_resnet_v2", "PreAuxLogits", 321, align_feature_maps=True) == (1088, 21, 21)
    assert shape_of("vgg_a", "global_pool", 256, global_pool=True) == (4096, 1, 1)
    assert shape_of("inception_v2", "Mixed_5c", 224, depth_multiplier=0.5) == (512, 7, 7)


@pytest.mark.slow
def test_atrous_blocks_see_what_strided_ones_see():
    """With output_stride 4 the dense map, taken at every eighth pixel, is the strided network's."""
    strided, dense = (
        slim.create_model("resnet_v1_50", None, is_training=False, global_pool=False, output_stride=stride)
        for stride in (None, 4)
    )
    dense.load_slim_variables(strided.slim_variables())
    x = torch.randn(1, 3, 65, 65)
    with torch.no_grad():
        few, many = strided(x)[0], dense(x)[0]
    assert few.shape[-1] == 3 and many.shape[-1] == 17
    assert torch.allclose(few, many[:, :, ::8, ::8], atol=1e-3 * few.abs().max().item())


def test_drop_path_follows_the_global_step():
    net = slim.create_model("nasnet_cifar", 10, image_size=16, dropout_keep_prob=1.0, total_training_steps=10)
    x = torch.randn(2, 3, 16, 16)
    for layer in net.modules():
        if isinstance(layer, BatchNorm):
            layer.eval()  # so that two passes differ by their drop-path alone
    with torch.no_grad():
        first = net(x)[0]
        net.set_global_step(0)
        assert torch.equal(net(x)[0], first) and net.global_step == 1  # at step 0 nothing is dropped
        net.set_global_step(10)
        assert not torch.equal(net(x)[0], net(x)[0])
    assert net.state_dict()["global_step"] == 12


@pytest.mark.slow
def test_a_graph_trains_a_network_as_eager_steps_do():
    net, other = (slim.create_model("inception_v3", 10, image_size=112, dropout_keep_prob=1.0) for _ in range(2))
    other.load_slim_variables(net.slim_variables())
    x, y = torch.randn(2, 3, 112, 112), torch.tensor([1, 2])

    def loss_of(model):
        logits, points = model(x)
        return (
            sum(torch.nn.functional.cross_entropy(z, y) for z in (logits, points["AuxLogits"]))
            + model.regularization_loss()
        )

    class Train(flow.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model = net
            self.add_optimizer(flow.optim.SGD(net.parameters(), lr=0.01))

        def build(self):
            loss = loss_of(self.model)
            loss.backward()
            return loss

    graph, optimizer = Train(), torch.optim.SGD(other.parameters(), lr=0.01)
    for _ in range(2):
        found, expected = graph(), loss_of(other)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert torch.allclose(found, expected, rtol=1e-3)
    moved = other.slim_variables()
    assert all(
        np.allclose(value, moved[name], atol=2e-3, rtol=1e-2)
        for name, value in net.slim_variables().items()
        if "moving" in name
    )


def test_valid_padding_pads_nothing():
    assert max_pool(torch.zeros(1, 1, 5, 5), 2, 2, VALID).shape == (1, 1, 2, 2)
