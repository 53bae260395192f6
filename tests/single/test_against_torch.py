"""Whole training runs against plain torch with the same first weights and the same data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oneflow as flow

STEPS, BATCH = 12, 16


def lenet(images):  # type: ignore[no-untyped-def]
    init = flow.truncated_normal(0.1)
    x = flow.layers.conv2d(images, 8, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=init, name="conv1")
    x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", name="pool1")
    x = flow.layers.conv2d(x, 16, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=init, name="conv2")
    x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", name="pool2")
    x = flow.reshape(x, [x.shape[0], -1])
    x = flow.layers.dense(x, 32, activation=flow.nn.relu, kernel_initializer=init, name="dense1")
    return flow.layers.dense(x, 10, kernel_initializer=init, name="dense2")


def torch_lenet(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    x = F.max_pool2d(F.relu(F.conv2d(x, p["conv1-weight"], p["conv1-bias"], padding=2)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, p["conv2-weight"], p["conv2-bias"], padding=2)), 2)
    x = F.relu(F.linear(x.flatten(1), p["dense1-weight"], p["dense1-bias"]))
    return F.linear(x, p["dense2-weight"], p["dense2-bias"])


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    pattern = rng.normal(size=(10, 1, 28, 28))
    labels = [rng.integers(0, 10, BATCH).astype(np.int32) for _ in range(STEPS)]
    return [((pattern[y] + rng.normal(size=(BATCH, 1, 28, 28))).astype(np.float32) * 0.5, y) for y in labels]


def parameters() -> dict[str, torch.Tensor]:
    values = {name: torch.from_numpy(v.numpy()) for name, v in flow.get_all_variables().items()}
    return {name: v.requires_grad_() for name, v in values.items() if name.endswith(("-weight", "-bias"))}


@pytest.mark.parametrize("loss_in", ["vector", "mean"])
def test_lenet_with_plain_sgd_learns_as_torch_does(loss_in: str) -> None:
    config = flow.function_config()
    config.train.primary_lr(0.05)
    config.train.model_update_conf({"naive_conf": {}})

    @flow.global_function(config)
    def train(images=flow.FixedTensorDef((BATCH, 1, 28, 28)), labels=flow.FixedTensorDef((BATCH,), dtype=flow.int32)):  # type: ignore[no-untyped-def]
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, lenet(images))
        flow.losses.add_loss(loss if loss_in == "vector" else flow.math.reduce_mean(loss))
        return loss

    flow.train.CheckPoint().init()
    params = parameters()
    optimizer = torch.optim.SGD(params.values(), lr=0.05)
    losses = []
    for images, labels in batches():
        ours = train(images, labels).get()
        theirs = F.cross_entropy(
            torch_lenet(params, torch.from_numpy(images)), torch.from_numpy(labels).long(), reduction="none"
        )
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=2e-4, atol=2e-5)
        optimizer.zero_grad()
        theirs.mean().backward()
        optimizer.step()
        losses.append(float(ours.mean()))
    assert losses[-1] < losses[0]
    for name, value in params.items():
        np.testing.assert_allclose(
            flow.get_all_variables()[name].numpy(), value.detach().numpy(), rtol=1e-3, atol=1e-5, err_msg=name
        )


def test_a_net_with_batch_norm_and_adamw_learns_as_torch_does() -> None:
    @flow.global_function(type="train")
    def train(images=flow.FixedTensorDef((BATCH, 3, 8, 8)), labels=flow.FixedTensorDef((BATCH,), dtype=flow.int32)):  # type: ignore[no-untyped-def]
        init = flow.truncated_normal(0.2)
        x = flow.layers.conv2d(images, 6, 3, padding="SAME", use_bias=False, kernel_initializer=init, name="conv")
        x = flow.nn.relu(flow.layers.batch_normalization(x, axis=1, momentum=0.9, epsilon=1e-5, name="bn"))
        x = flow.layers.dense(flow.reshape(x, [BATCH, -1]), 10, kernel_initializer=init, name="out")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
        schedule = flow.optimizer.CosineScheduler(0.01, steps=STEPS)
        flow.optimizer.AdamW(schedule, do_bias_correction=True, epsilon=1e-6, weight_decay=0.1).minimize(loss)
        return loss

    flow.train.CheckPoint().init()
    start = {name: torch.from_numpy(v.numpy()) for name, v in flow.get_all_variables().items()}
    bn, conv, out = (
        torch.nn.BatchNorm2d(6, momentum=0.1),
        torch.nn.Conv2d(3, 6, 3, padding=1, bias=False),
        torch.nn.Linear(384, 10),
    )
    with torch.no_grad():
        conv.weight.copy_(start["conv-weight"])
        out.weight.copy_(start["out-weight"])
        out.bias.zero_()
    names = {
        "conv-weight": conv.weight,
        "bn-gamma": bn.weight,
        "bn-beta": bn.bias,
        "out-weight": out.weight,
        "out-bias": out.bias,
    }
    moments = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in names.items()}
    rng = np.random.default_rng(0)
    for t in range(STEPS):
        images, labels = (
            rng.normal(size=(BATCH, 3, 8, 8)).astype(np.float32),
            rng.integers(0, 10, BATCH).astype(np.int32),
        )
        ours = train(images, labels).get()
        logits = out(F.relu(bn(conv(torch.from_numpy(images)))).flatten(1))
        theirs = F.cross_entropy(logits, torch.from_numpy(labels).long(), reduction="none")
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-3, atol=1e-4)
        grads = torch.autograd.grad(theirs.mean(), list(names.values()))
        _adamw_step(t, names, moments, grads)
    got = flow.get_all_variables()
    np.testing.assert_allclose(got["bn-moving_mean"].numpy(), bn.running_mean.numpy(), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(got["bn-moving_variance"].numpy(), bn.running_var.numpy(), rtol=1e-3, atol=1e-4)


def _adamw_step(
    t: int,
    names: dict[str, torch.Tensor],
    moments: dict[str, tuple[torch.Tensor, torch.Tensor]],
    grads: tuple[torch.Tensor, ...],
) -> None:
    """The formula of the original, written out."""
    lr = 0.01 * 0.5 * (1 + np.cos(np.pi * t / STEPS)) * np.sqrt(1 - 0.999 ** (t + 1)) / (1 - 0.9 ** (t + 1))
    with torch.no_grad():
        for (name, p), g in zip(names.items(), grads):
            m, v = moments[name]
            m.mul_(0.9).add_(0.1 * g)
            v.mul_(0.999).add_(0.001 * g * g)
            p.sub_(lr * (m / (v.sqrt() + 1e-6) + 0.1 * p))
