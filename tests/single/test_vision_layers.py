"""flowvision's layers against their formulas."""

from __future__ import annotations

import math

import pytest
import torch

import oneflow as flow
from flowvision import layers
from flowvision.layers.blocks import get_padding, get_same_padding, is_static_pad
from oneflow.engine.core.errors import ArgumentError

X = torch.arange(2 * 8 * 5 * 6.0).view(2, 8, 5, 6).sin()


def test_squeeze_and_excitation_and_its_kin_by_hand():
    flow.manual_seed(0)
    se = layers.SEModule(8, reduction=4)
    means = X.mean((2, 3))
    first = torch.relu(means @ se.fc1.weight.view(2, 8).T + se.fc1.bias)
    weights = torch.sigmoid(first @ se.fc2.weight.view(8, 2).T + se.fc2.bias)
    assert torch.allclose(se(X), X * weights[:, :, None, None], atol=1e-6)
    eca = layers.EcaModule(kernel_size=3)
    padded = torch.cat([torch.zeros(2, 1), means, torch.zeros(2, 1)], 1)
    gates = torch.sigmoid(sum(padded[:, at : at + 8] * eca.conv.weight[0, 0, at] for at in range(3)))
    assert torch.allclose(eca(X), X * gates[:, :, None, None], atol=1e-6)
    assert [layers.EcaModule(channels).conv.kernel_size[0] for channels in (8, 64, 512)] == [3, 3, 5]
    attention = layers.ChannelAttn(8, rd_ratio=1 / 4)
    both = [
        torch.relu(v @ attention.fc1.weight.view(2, 8).T) @ attention.fc2.weight.view(8, 2).T
        for v in (means, X.amax((2, 3)))
    ]
    assert torch.allclose(attention(X), X * torch.sigmoid(both[0] + both[1])[:, :, None, None], atol=1e-6)
    assert layers.CbamModule(8)(X).shape == X.shape


def test_same_padding_and_its_convolution():
    assert [
        get_padding(3),
        get_padding(7, 2),
        get_same_padding(224, 3, 2, 1),
        get_same_padding(225, 3, 2, 1),
        is_static_pad(3),
        is_static_pad(2),
    ] == [
        *(1, 3, 1, 2),
        *(True, False),
    ]
    conv = layers.Conv2dSame(8, 4, 3, stride=2)
    expected = torch.nn.functional.conv2d(torch.nn.functional.pad(X, (0, 1, 1, 1)), conv.weight, conv.bias, 2)
    assert torch.equal(conv(X), expected) and expected.shape == (2, 4, 3, 3)
    assert [type(layer).__name__ for layer in layers.ConvBnAct(8, 4, kernel_size=1)] == [
        "Conv2d",
        "BatchNorm2d",
        "ReLU",
    ]
    assert len(layers.ConvBnAct(8, 4, act_layer=None, norm_layer=None, kernel_size=1)) == 1


def test_full_connections_by_hand():
    flow.manual_seed(0)
    x = torch.randn(2, 3, 8)
    mlp, glu, conv = layers.Mlp(8, 16, 4), layers.GluMlp(8, 16, 4), layers.ConvMlp(8, 16, 4)
    assert torch.allclose(
        mlp(x),
        torch.nn.functional.gelu(x @ mlp.fc1.weight.T + mlp.fc1.bias) @ mlp.fc2.weight.T + mlp.fc2.bias,
        atol=1e-6,
    )
    hidden = x @ glu.fc1.weight.T + glu.fc1.bias
    assert torch.allclose(
        glu(x), (hidden[..., :8] * torch.sigmoid(hidden[..., 8:])) @ glu.fc2.weight.T + glu.fc2.bias, atol=1e-6
    )
    pixels = (
        torch.relu(X.permute(0, 2, 3, 1) @ conv.fc1.weight.view(16, 8).T + conv.fc1.bias)
        @ conv.fc2.weight.view(4, 16).T
        + conv.fc2.bias
    )
    assert torch.allclose(conv(X), pixels.permute(0, 3, 1, 2), atol=1e-5)
    assert layers.GatedMlp(8, 16, 4)(x).shape == (2, 3, 4)


def test_paths_are_dropped_whole_and_the_mean_stays():
    flow.manual_seed(0)
    ones = torch.ones(4000, 2, 3)
    dropped = layers.drop_path(ones, 0.25, training=True)
    assert sorted(set(dropped.flatten().tolist())) == pytest.approx([0.0, 4 / 3]) and torch.equal(
        dropped[:, 0, 0], dropped[:, 1, 2]
    )
    assert abs(dropped.mean().item() - 1) < 0.05
    whole = layers.stochastic_depth(ones, 0.5, "batch")
    assert len(set(whole.flatten().tolist())) == 1
    assert (
        torch.equal(layers.StochasticDepth(0.5).eval()(ones), ones)
        and layers.stochastic_depth(ones, 1.0, "row").sum() == 0
    )
    assert torch.equal(layers.DropPath(0.5).eval()(ones), ones) and "drop_prob=0.5" in repr(layers.DropPath(0.5))
    with pytest.raises(ArgumentError, match="p is a probability between 0 and 1, got 2"):
        layers.stochastic_depth(ones, 2, "row")
    with pytest.raises(ArgumentError, match="mode is 'batch' or 'row', got 'column'"):
        layers.stochastic_depth(ones, 0.5, "column")


def test_blocks_are_dropped_in_squares_and_the_sum_stays():
    flow.manual_seed(0)
    x = torch.ones(64, 4, 20, 20)
    y = layers.DropBlock(block_size=3, p=0.2)(x)
    assert 0.1 < (y == 0).float().mean() < 0.25 and abs(y.mean().item() - 1) < 1e-4
    gone = (y == 0).float()
    around = torch.nn.functional.avg_pool2d(gone, 3, 1)
    assert (around == 1).any()
    assert torch.equal(layers.DropBlock().eval()(x), x)


def test_layer_norm_over_channels():
    norm = layers.LayerNorm2d(8)
    mean, var = X.mean(1, keepdim=True), X.var(1, unbiased=False, keepdim=True)
    assert torch.allclose(norm(X), (X - mean) / (var + 1e-5).sqrt(), atol=1e-5)


def test_first_values_and_widths():
    flow.manual_seed(0)
    weight = torch.empty(400, 300)
    assert abs(layers.lecun_normal_(weight).std().item() * math.sqrt(300) - 1) < 0.02
    assert abs(layers.variance_scaling_(weight, 2.0, "fan_out", "uniform").std().item() / math.sqrt(2 / 400) - 1) < 0.02
    assert abs(layers.variance_scaling_(weight, 1.0, "fan_avg").std().item() / math.sqrt(1 / 350) - 1) < 0.02
    assert layers.trunc_normal_(weight, std=3.0).abs().max() <= 2
    with pytest.raises(ArgumentError, match="mode is one of fan_in, fan_out, fan_avg, got 'fan'"):
        layers.variance_scaling_(weight, mode="fan")
    with pytest.raises(ArgumentError, match="distribution is normal, truncated_normal or uniform, got 'x'"):
        layers.variance_scaling_(weight, distribution="x")
    assert [layers.make_divisible(v) for v in (33, 44.8, 3, 11)] == [32, 48, 8, 16]
    x = torch.tensor([-4.0, 0.0, 1.0, 4.0])
    assert torch.allclose(layers.hard_sigmoid()(x.clone()), (x + 3).clamp(0, 6) / 6) and torch.allclose(
        layers.hard_swish()(x.clone()), x * (x + 3).clamp(0, 6) / 6
    )
