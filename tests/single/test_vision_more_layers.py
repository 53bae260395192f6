"""Further layers of flowvision, boxes, schedules and registries against their formulas, and what is refused by name."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oneflow as flow
from flowvision import layers, ops, scheduler
from flowvision.layers import blocks
from flowvision.layers.blocks.boxes import box_iou_np
from flowvision.models.helpers import named_apply
from flowvision.models.layer_getter import IntermediateLayerGetter
from flowvision.utils import Registry
from oneflow.compat.absent_modules import AbsentModuleError
from oneflow.engine.core.errors import ArgumentError

X = torch.arange(2 * 8 * 5 * 6.0).view(2, 8, 5, 6).sin()


def seeded(module: torch.nn.Module) -> torch.nn.Module:
    """With values everywhere, so that no factor of zero or one hides a mistake."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.1, 0.5)
    return module.eval()


def test_attention_over_all_pixels_and_over_a_context_by_hand():
    layer = seeded(layers.NonLocalAttn(8, rd_channels=4))
    pixels = X.flatten(2).transpose(1, 2)
    q, k, v = (pixels @ conv.weight.view(4, 8).T + conv.bias for conv in (layer.t, layer.p, layer.g))
    seen = (q @ k.transpose(1, 2) / math.sqrt(8)).softmax(-1) @ v
    expected = (seen @ layer.z.weight.view(8, 4).T + layer.z.bias) / math.sqrt(
        1 + 1e-5
    ) * layer.norm.weight + layer.norm.bias
    assert torch.allclose(layer(X), expected.transpose(1, 2).view_as(X) + X, atol=1e-5)
    layer = seeded(layers.GlobalContext(8, fuse_add=True, rd_channels=4))
    weights = (pixels @ layer.conv_attn.weight.view(1, 8).T + layer.conv_attn.bias).softmax(1)
    context = (pixels * weights).sum(1)

    def through(mlp):
        hidden = F.relu(
            F.layer_norm(context @ mlp.fc1.weight.view(4, 8).T + mlp.fc1.bias, (4,), mlp.norm.weight, mlp.norm.bias)
        )
        return (hidden @ mlp.fc2.weight.view(8, 4).T + mlp.fc2.bias)[:, :, None, None]

    assert torch.allclose(layer(X), X * through(layer.mlp_scale).sigmoid() + through(layer.mlp_add), atol=1e-5)
    plain = seeded(layers.GlobalContext(8, use_attn=False, rd_channels=4))
    assert plain(X).shape == X.shape


def test_rows_columns_channels_and_neighbourhoods_weigh_a_map():
    layer = seeded(layers.CoordAttModule(8, rd_channels=4))

    def narrow(means):
        return F.hardswish(
            (means @ layer.conv1.weight.view(4, 8).T) / math.sqrt(1 + 1e-5) * layer.bn1.weight + layer.bn1.bias
        )

    rows = (narrow(X.mean(3).transpose(1, 2)) @ layer.conv_h.weight.view(8, 4).T).sigmoid().transpose(1, 2)
    columns = (narrow(X.mean(2).transpose(1, 2)) @ layer.conv_w.weight.view(8, 4).T).sigmoid().transpose(1, 2)
    assert torch.allclose(layer(X), X * rows[:, :, :, None] * columns[:, :, None, :], atol=1e-5)
    bam = seeded(layers.BAMModule(8, rd_channels=4))
    assert torch.allclose(bam(X), X * (1 + (bam.channel_attn(X) * bam.spatial_attn(X)).sigmoid()))
    channels, pixels = bam.channel_attn(X), bam.spatial_attn(X)
    assert torch.equal(channels[:, :, 0, 0], channels[:, :, 4, 5]) and torch.equal(pixels[:, 0], pixels[:, 7])
    assert torch.allclose(layers.GCTModule(8)(X), X)  # gates are open before training
    for mode in ("l1", "l2"):
        gct = seeded(layers.GCTModule(8, mode=mode))
        size = (X.abs().sum((2, 3)) if mode == "l1" else (X.square().sum((2, 3)) + 1e-5).sqrt()) * gct.alpha.view(8)
        norm = (
            size.abs().mean(1, keepdim=True) + 1e-5
            if mode == "l1"
            else (size.square().mean(1, keepdim=True) + 1e-5).sqrt()
        )
        gate = 1 + torch.tanh(size * gct.gamma.view(8) / norm + gct.beta.view(8))
        assert torch.allclose(gct(X), X * gate[:, :, None, None], atol=1e-5)
    with pytest.raises(ArgumentError, match="mode is 'l1' or 'l2', got 'l3'"):
        layers.GCTModule(8, mode="l3")


def test_attention_with_a_smaller_map_of_keys():
    layer = seeded(layers.SR_Attention(8, 2, sr_ratio=2))
    tokens = torch.randn(2, 16, 8)
    smaller = (
        F.conv2d(tokens.transpose(1, 2).reshape(2, 8, 4, 4), layer.sr.weight, layer.sr.bias, 2)
        .flatten(2)
        .transpose(1, 2)
    )
    seen = F.layer_norm(smaller, (8,), layer.norm.weight, layer.norm.bias)
    q, (k, v) = tokens @ layer.q.weight.T, (seen @ layer.kv.weight.T).split(8, -1)
    heads = [
        (q[..., at : at + 4] @ k[..., at : at + 4].transpose(1, 2) / 2).softmax(-1) @ v[..., at : at + 4]
        for at in (0, 4)
    ]
    assert torch.allclose(layer(tokens, 4, 4), torch.cat(heads, -1) @ layer.proj.weight.T + layer.proj.bias, atol=1e-5)
    with pytest.raises(ArgumentError, match="dim 8 should be a multiple of num_heads 3"):
        layers.SR_Attention(8, 3)


def test_a_dynamic_convolution_mixes_kernels_for_each_picture():
    layer = layers.Dynamic_conv2d(8, 6, 3, padding=1, K=3)
    torch.nn.init.normal_(layer.bias)
    mix = layer.attention(X)
    assert torch.allclose(mix.sum(1), torch.ones(2))
    each = [
        F.conv2d(x[None], (m[:, None, None, None, None] * layer.weight).sum(0), m @ layer.bias, padding=1)
        for x, m in zip(X, mix)
    ]
    assert torch.allclose(layer(X), torch.cat(each), atol=1e-5)
    for _ in range(20):
        layer.update_temperature()
    assert layer.attention.temperature == 1


def test_blocks_of_other_libraries():
    frozen = blocks.FrozenBatchNorm2d(8)
    for buffer in frozen.buffers():
        buffer.copy_(torch.rand(8) + 0.5)
    expected = F.batch_norm(X, frozen.running_mean, frozen.running_var, frozen.weight, frozen.bias)
    assert torch.allclose(frozen(X), expected, atol=1e-5) and not list(frozen.parameters())
    scores, labels = torch.randn(6), torch.tensor([0.0, 1, 1, 0, 1, 0])
    p = torch.where(labels == 1, scores.sigmoid(), 1 - scores.sigmoid())
    weights = torch.where(labels == 1, 0.25, 0.75)
    assert torch.allclose(
        blocks.sigmoid_focal_loss(scores, labels, reduction="sum"), (-weights * (1 - p) ** 2 * p.log()).sum(), atol=1e-5
    )
    with pytest.raises(ArgumentError, match="reduction is 'none', 'mean' or 'sum', got 'max'"):
        blocks.sigmoid_focal_loss(scores, labels, reduction="max")
    same, stays = (
        blocks.create_conv2d_pad(8, 4, 3, stride=2, padding="same"),
        blocks.create_conv2d_pad(8, 4, 3, padding=""),
    )
    assert (
        type(same) is blocks.Conv2dSame
        and stays.padding == (1, 1)
        and blocks.create_conv2d_pad(8, 4, 3, padding="valid").padding == (0, 0)
    )
    with pytest.raises(ArgumentError, match="padding is 'same', 'valid', '' or a number, got 'full'"):
        blocks.create_conv2d_pad(8, 4, 3, padding="full")


def test_boxes():
    a, b = torch.tensor([[0.0, 0, 2, 2], [0, 0, 4, 1]]), torch.tensor([[1.0, 1, 3, 3], [0, 0, 2, 2]])
    assert torch.allclose(ops.box_iou(a, b), torch.tensor([[1 / 7, 1], [0, 2 / 6]]))
    assert np.allclose(box_iou_np(a.numpy(), b.numpy()), ops.box_iou(a, b))
    assert torch.allclose(ops.generalized_box_iou(a, b)[0, 0], torch.tensor(1 / 7 - 2 / 9))
    assert torch.allclose(blocks.generalized_box_iou_loss(a[:1], b[:1]), torch.tensor([1 - 1 / 7 + 2 / 9]))
    assert torch.allclose(ops.distance_box_iou(a, b)[0, 0], torch.tensor(1 / 7 - 2 / 18)) and torch.allclose(
        ops.complete_box_iou(a, b)[0, 0], torch.tensor(1 / 7 - 2 / 18)
    )
    shape = 4 / math.pi**2 * (math.atan(4) - math.atan(1)) ** 2
    expected = 2 / 6 - (1 + 0.25) / (16 + 4) - shape * shape / (1 - 2 / 6 + shape)
    assert torch.allclose(ops.complete_box_iou(a, b)[1, 1], torch.tensor(expected))
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 10, 10]])
    assert ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1, 0.4]), 0.5).tolist() == [1, 2]
    assert ops.batched_nms(boxes, torch.tensor([0.5, 0.9, 0.1, 0.4]), torch.tensor([0, 0, 0, 1]), 0.5).tolist() == [
        1,
        3,
        2,
    ]
    assert ops.batched_nms(boxes[:0], torch.zeros(0), torch.zeros(0), 0.5).tolist() == []
    assert ops.clip_boxes_to_image(torch.tensor([[-1.0, 2, 50, 9]]), (5, 40)).tolist() == [[0, 2, 40, 5]]
    assert ops.remove_small_boxes(a, 1.5).tolist() == [0]
    assert ops.masks_to_boxes(torch.tensor([[[0, 0, 0], [0, 1, 1]]])).tolist() == [[1, 1, 2, 1]]
    for form, row in (("xywh", [1.0, 2, 4, 6]), ("cxcywh", [3.0, 5, 4, 6])):
        assert ops.box_convert(torch.tensor([1.0, 2, 5, 8]), "xyxy", form).tolist() == row
        assert ops.box_convert(torch.tensor(row), form, "xyxy").tolist() == [1, 2, 5, 8]
    with pytest.raises(ArgumentError, match="out_fmt is one of xyxy, xywh, cxcywh, got 'yx'"):
        ops.box_convert(a, "xyxy", "yx")


def rates(make, times: int, by_update: bool = False) -> list[float]:
    optimizer = flow.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = make(optimizer)
    found = []
    for t in range(times):
        (schedule.step_update if by_update else schedule.step)(t)
        found.append(optimizer.param_groups[0]["lr"])
    return found


def test_schedules_by_their_formulas():
    cosine = rates(
        lambda o: scheduler.CosineLRScheduler(
            o, 10, lr_min=0.01, warmup_t=4, warmup_lr_init=0.02, decay_rate=0.5, cycle_limit=2
        ),
        25,
    )
    assert cosine[:4] == pytest.approx([0.02, 0.04, 0.06, 0.08])
    assert cosine[4:10] == pytest.approx([0.01 + 0.045 * (1 + math.cos(math.pi * t / 10)) for t in range(4, 10)])
    assert cosine[10] == pytest.approx(0.05) and cosine[20:] == [0.01] * 5
    grown = rates(lambda o: scheduler.CosineLRScheduler(o, 10, t_mul=2.0), 31)
    assert grown[10] == grown[30] == pytest.approx(0.1) and grown[20] == pytest.approx(0.05)
    assert (
        scheduler.CosineLRScheduler(
            flow.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1), 10, t_mul=2.0
        ).get_cycle_length(2)
        == 30
    )
    assert rates(lambda o: scheduler.StepLRScheduler(o, 2, 0.5), 5) == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025])
    assert rates(lambda o: scheduler.MultiStepLRScheduler(o, [2, 4], 0.5), 5) == pytest.approx(
        [0.1, 0.05, 0.05, 0.025, 0.025]
    )
    assert rates(lambda o: scheduler.LinearLRScheduler(o, 10, 0.1, warmup_t=2), 11)[1:11:3] == pytest.approx(
        [0.05, 0.1 - 0.09 * 2 / 8, 0.1 - 0.09 * 5 / 8, 0.01]
    )
    poly = rates(lambda o: scheduler.PolyLRScheduler(o, 10, 0.9, k_decay=0.7), 12)
    assert poly[3] == pytest.approx(0.1 * (1 - 0.3**0.7) ** 0.9) and poly[10:] == [0, 0]
    tanh = rates(lambda o: scheduler.TanhLRScheduler(o, 10, warmup_t=2), 6)
    curve = [0.05 * (1 - math.tanh(-7 + t)) for t in range(6)]
    assert tanh == pytest.approx([0, curve[2] / 2, *curve[2:]])
    assert rates(lambda o: scheduler.StepLRScheduler(o, 2, 0.5, t_in_epochs=False), 3, by_update=True) == pytest.approx(
        [0.1, 0.1, 0.05]
    )
    assert rates(lambda o: scheduler.StepLRScheduler(o, 2, 0.5), 3, by_update=True) == [0.1] * 3


def test_schedules_with_noise_are_kept_and_refuse_what_is_wrong():
    noisy = [
        rates(lambda o: scheduler.StepLRScheduler(o, 100, noise_range_t=[2, 4], noise_pct=0.5), 6) for _ in range(2)
    ]
    assert (
        noisy[0] == noisy[1]
        and noisy[0][:2] == [0.1, 0.1] == noisy[0][4:]
        and all(0.05 < rate < 0.15 and rate != 0.1 for rate in noisy[0][2:4])
    )
    optimizer = flow.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule, other = scheduler.CosineLRScheduler(optimizer, 10), scheduler.CosineLRScheduler(optimizer, 20)
    other.load_state_dict(schedule.state_dict())
    assert other.t_initial == 10 and "optimizer" not in schedule.state_dict()
    with pytest.raises(ArgumentError, match="lb should be below ub, got 3 and 1"):
        scheduler.TanhLRScheduler(optimizer, 10, lb=3, ub=1)
    with pytest.raises(ArgumentError, match="heat is missing from parameter group 0"):
        scheduler.Scheduler(optimizer, "heat")
    fresh = flow.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(
        ArgumentError, match="initial_lr is missing from parameter group 0; it is set with initialize=True"
    ):
        scheduler.StepLRScheduler(fresh, 1, initialize=False)


def test_registries_helpers_and_first_layers():
    registry = Registry("made")
    assert registry.register()(dict) is dict and registry.register(list) is list
    assert (
        registry.get("dict") is dict
        and "list" in registry
        and dict(registry) == {"dict": dict, "list": list}
        and repr(registry) == "Registry of made: dict, list"
    )
    with pytest.raises(KeyError, match="the registry 'made' has no 'dictt'. Did you mean 'dict'"):
        registry.get("dictt")
    with pytest.raises(ArgumentError, match="'dict' is in the registry 'made' already"):
        registry.register(dict)
    net = torch.nn.Sequential(torch.nn.Sequential(torch.nn.ReLU()), torch.nn.Tanh(), torch.nn.Identity())
    orders = []
    for depth_first in (True, False):
        seen: list[str] = []
        named_apply(lambda module, name, seen=seen: seen.append(name), net, depth_first=depth_first, include_root=True)
        orders.append(seen)
    assert orders == [["0.0", "0", "1", "2", ""], ["", "0", "0.0", "1", "2"]]
    getter = IntermediateLayerGetter(net, {"0": "first", "1": "second"})
    assert (
        list(getter) == ["0", "1"]
        and torch.equal(getter(X)["second"], X.relu().tanh())
        and torch.equal(getter(X)["first"], X.relu())
    )
    with pytest.raises(ArgumentError, match="the network has no layer '7'; it has 0, 1, 2"):
        IntermediateLayerGetter(net, {"7": "x"})


def test_modules_and_names_that_are_not_there_say_so_in_imports_too():
    for name in (
        "models.detection.faster_rcnn",
        "models.swin_v9",
        "models.resnest",
        "datasets.coco",
        "layers.blocks.roi_align",
        "utils.utils",
        "ops._utils",
    ):
        with pytest.raises(ModuleNotFoundError) as error:
            importlib.import_module(f"flowvision.{name}")
        assert isinstance(error.value, AbsentModuleError) == (name != "models.swin_v9")
    with pytest.raises(AbsentModuleError, match="flowvision.models.resnest50 is not there: timm has this family"):
        from flowvision.models import resnest50  # noqa: F401
    with pytest.raises(
        AbsentModuleError, match="flowvision.datasets.CocoDetection is not there: sets with one folder for each class"
    ):
        from flowvision.datasets import CocoDetection  # noqa: F401
