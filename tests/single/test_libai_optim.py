"""Parameter groups by kind and name, and schedulers by their formulas."""

from __future__ import annotations

import math

import pytest
import torch

import oneflow as flow
from libai.config import LazyCall
from libai.optim import build_optimizer, get_default_optimizer_params
from libai.optim.build import reduce_param_groups
from libai.scheduler import (
    WarmupCosineAnnealingLR,
    WarmupCosineLR,
    WarmupExponentialLR,
    WarmupMultiStepLR,
    WarmupPolynomialLR,
    WarmupStepLR,
    build_lr_scheduler,
)
from oneflow import nn


def mlp():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def names(model, groups):
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        ({key: value for key, value in group.items() if key != "params"}, [known[id(p)] for p in group["params"]])
        for group in groups
    ]


def test_weights_and_biases_of_the_tutorial_s_network():
    model = mlp()
    groups = get_default_optimizer_params(
        model, weight_decay_norm=0.0, weight_decay_bias=0.0, clip_grad_max_norm=1.0, clip_grad_norm_type=2.0
    )
    clip = {"clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}
    assert names(model, groups) == [
        (clip, ["0.weight", "2.weight"]),
        ({**clip, "weight_decay": 0.0}, ["0.bias", "2.bias"]),
    ]


def test_norms_have_a_decay_of_their_own_and_layer_norm_only_if_asked():
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.LayerNorm(2))
    found = names(model, get_default_optimizer_params(model, base_lr=0.5, weight_decay=0.1, weight_decay_norm=0.0))
    assert found == [
        ({"lr": 0.5, "weight_decay": 0.1}, ["0.weight", "0.bias", "3.weight", "3.bias"]),
        ({"lr": 0.5, "weight_decay": 0.0}, ["1.weight", "1.bias", "2.weight", "2.bias"]),
    ]
    asked = names(
        model, get_default_optimizer_params(model, weight_decay=0.1, weight_decay_norm=0.0, layer_norm_is_norm=True)
    )
    assert asked[0][1] == ["0.weight", "0.bias"]


def test_overrides_frozen_and_shared_parameters():
    model = mlp()
    model[0].weight.requires_grad_(False)
    shared = nn.Sequential(model, model)
    found = names(model, get_default_optimizer_params(shared, overrides={"bias": {"lr": 2.0}}))
    assert found == [({"lr": 2.0}, ["0.bias", "2.bias"]), ({}, ["2.weight"])]
    with pytest.raises(ValueError, match="Conflicting overrides for 'bias'"):
        get_default_optimizer_params(model, weight_decay_bias=0.0, overrides={"bias": {"lr": 1.0}})


def test_equal_options_share_a_group_in_the_order_they_appear():
    assert reduce_param_groups([{"params": [1], "lr": 1}, {"params": [2]}, {"lr": 1, "params": [3]}]) == [
        {"params": [1, 3], "lr": 1},
        {"params": [2]},
    ]


def test_the_optimizer_of_a_config():
    model = mlp()
    cfg = LazyCall(flow.optim.AdamW)(
        params=LazyCall(get_default_optimizer_params)(weight_decay_bias=0.0),
        lr=1e-4,
        weight_decay=0.01,
        do_bias_correction=True,
    )
    optimizer = build_optimizer(cfg, model)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert optimizer.param_groups[0]["params"][0] is model[0].weight and "model" not in cfg.params
    plain = build_optimizer(LazyCall(flow.optim.SGD)(lr=0.5), model)
    assert [len(group["params"]) for group in plain.param_groups] == [4] and plain.param_groups[0]["lr"] == 0.5


B, F, W, N = 0.1, 0.01, 4, 20


def cosine(t):
    return B * (0.9 * 0.5 * (1 + math.cos(math.pi * t / N)) + 0.1) if t < N else B * 0.1


SCHEDULES = [
    (WarmupCosineLR, {"alpha": 0.1}, cosine),
    (WarmupCosineAnnealingLR, {"eta_min": 0.01}, lambda t: 0.01 + (B - 0.01) * 0.5 * (1 + math.cos(math.pi * t / N))),
    (WarmupStepLR, {"step_size": 3, "gamma": 0.5}, lambda t: B * 0.5 ** (t // 3)),
    (WarmupMultiStepLR, {"milestones": [2, 10], "gamma": 0.1}, lambda t: B * 0.1 ** sum(m <= t for m in (2, 10))),
    (WarmupExponentialLR, {"gamma": 0.9}, lambda t: B * 0.9**t),
    (
        WarmupPolynomialLR,
        {"end_learning_rate": 0.001, "power": 2.0},
        lambda t: (B - 0.001) * (1 - min(t, N) / N) ** 2 + 0.001,
    ),
]


def rates(make, steps=25, **arguments):
    optimizer = torch.optim.SGD(mlp().parameters(), lr=B)
    scheduler = make(optimizer, max_iter=N, warmup_factor=F, **arguments)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert found == [
        scheduler.rates(step)[0] for step in range(steps)
    ]  # a function of the step alone, as graphs need it
    return found


@pytest.mark.parametrize(("make", "options", "formula"), SCHEDULES)
def test_schedules_with_each_warm_up(make, options, formula):
    after = [formula(t) for t in range(25)]
    linear = [B * F + (formula(W) - B * F) * t / W for t in range(W)] + after[W:]
    assert rates(make, warmup_iter=W, **options) == pytest.approx(linear)
    assert rates(make, warmup_iter=W, warmup_method="constant", **options) == pytest.approx([B * F] * W + after[W:])
    assert rates(make, warmup_iter=0, **options) == pytest.approx(after)


def test_a_scheduler_of_a_config_and_its_state():
    optimizer = flow.optim.SGD(mlp().parameters(), lr=B)
    cfg = LazyCall(WarmupCosineLR)(max_iter=N, warmup_factor=F, warmup_iter=W, alpha=0.1)
    scheduler = build_lr_scheduler(cfg, optimizer)
    for _ in range(7):
        scheduler.step()
    other = build_lr_scheduler(cfg, flow.optim.SGD(mlp().parameters(), lr=B))
    other.load_state_dict(scheduler.state_dict())
    other.step()
    scheduler.step()
    assert other.get_last_lr() == scheduler.get_last_lr() == [pytest.approx(cosine(8))]
    assert "optimizer" not in cfg


def test_schedules_that_cannot_be_are_refused(caplog):
    two = torch.optim.SGD(
        [{"params": mlp().parameters(), "lr": 1.0}, {"params": mlp().parameters(), "lr": 2.0}], lr=1.0
    )
    with pytest.raises(
        ValueError, match=r"different warmup configs: .*one base lr.* got \[1.0, 2.0\]; use warmup_method='constant'"
    ):
        WarmupCosineLR(two, max_iter=N, warmup_factor=F, warmup_iter=W)
    WarmupCosineLR(two, max_iter=N, warmup_factor=F, warmup_iter=W, warmup_method="constant")
    for make in (WarmupCosineLR, WarmupPolynomialLR, WarmupCosineAnnealingLR):
        with pytest.raises(
            AssertionError,
            match="max_iter is the number of iterations and at least 1, got 0; set train.train_iter or train.train_epoch",
        ):
            make(two, max_iter=0, warmup_factor=F, warmup_iter=0)
    one = torch.optim.SGD(mlp().parameters(), lr=1.0)
    with pytest.raises(ValueError, match="warmup_factor is a number >= 0 and <= 1, got 2"):
        WarmupCosineLR(one, max_iter=N, warmup_factor=2, warmup_iter=W)
    with pytest.raises(ValueError, match="warmup_method is one of"):
        WarmupCosineLR(one, max_iter=N, warmup_factor=F, warmup_iter=W, warmup_method="cosine")
    WarmupCosineLR(one, max_iter=2, warmup_factor=F, warmup_iter=3)
    assert "warmup_iter is 3 and max_iter 2" in caplog.text and "there is no warm-up" not in caplog.text
    WarmupStepLR(one, max_iter=2, warmup_factor=F, warmup_iter=0, step_size=1)
    assert "warmup_iter is 0: there is no warm-up" in caplog.text
