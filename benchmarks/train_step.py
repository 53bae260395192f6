"""One training step of a job against plain PyTorch: the quick start's LeNet and a 784-512-512-10 MLP.

The rival is eager PyTorch as a good engineer writes it (fused SGD, gradients set to None), in NCHW and in channels_last; the
better of the two counts. All take turns in one run. ``python benchmarks/train_step.py [--rounds N]``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from measure import alternate, machine, report

import oneflow as flow

BATCH = {"lenet": 100, "mlp": 128}


def lenet_job(batch: int = BATCH["lenet"]) -> Callable[[], object]:
    config = flow.function_config()
    config.train.primary_lr(0.01)
    config.train.model_update_conf({"naive_conf": {}})

    @flow.global_function(config)
    def lenet_train(images=flow.FixedTensorDef((batch, 1, 28, 28)), labels=flow.FixedTensorDef((batch,), dtype=flow.int32)):
        init = flow.truncated_normal(0.1)
        x = flow.layers.conv2d(images, 32, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=init, name="conv1")
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", name="pool1")
        x = flow.layers.conv2d(x, 64, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=init, name="conv2")
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", name="pool2")
        x = flow.reshape(x, [x.shape[0], -1])
        x = flow.layers.dense(x, 512, activation=flow.nn.relu, kernel_initializer=init, name="dense1")
        logits = flow.layers.dense(x, 10, kernel_initializer=init, name="dense2")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.losses.add_loss(loss)
        return loss

    images, labels = digits(batch)
    return lambda: lenet_train(images, labels).get()


def mlp_job() -> Callable[[], object]:
    batch = BATCH["mlp"]
    config = flow.function_config()
    config.train.primary_lr(0.01)
    config.train.model_update_conf({"naive_conf": {}})

    @flow.global_function(config)
    def mlp_train(images=flow.FixedTensorDef((batch, 784)), labels=flow.FixedTensorDef((batch,), dtype=flow.int32)):
        init = flow.truncated_normal(0.05)
        x = flow.layers.dense(images, 512, activation=flow.nn.relu, kernel_initializer=init, name="fc1")
        x = flow.layers.dense(x, 512, activation=flow.nn.relu, kernel_initializer=init, name="fc2")
        logits = flow.layers.dense(x, 10, kernel_initializer=init, name="fc3")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.losses.add_loss(loss)
        return loss

    images, labels = digits(batch)
    flat = images.reshape(batch, 784)
    return lambda: mlp_train(flat, labels).get()


def digits(batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(batch, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, batch).astype(np.int32)


class LeNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = torch.nn.Conv2d(32, 64, 5, padding=2)
        self.dense1 = torch.nn.Linear(64 * 49, 512)
        self.dense2 = torch.nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense2(F.relu(self.dense1(x.flatten(1))))


def mlp() -> torch.nn.Module:
    layers = [torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)]
    return torch.nn.Sequential(*layers)


def torch_step(model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, memory_format: torch.memory_format) -> Callable[[], object]:
    """A plain training step from numpy arrays to a numpy loss, as the job's is."""
    model = model.to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)

    def step() -> np.ndarray:
        x, y = torch.from_numpy(images), torch.from_numpy(labels).long()
        if x.dim() == 4:
            x = x.contiguous(memory_format=memory_format)
        loss = F.cross_entropy(model(x), y, reduction="none")
        optimizer.zero_grad(set_to_none=True)
        loss.mean().backward()
        optimizer.step()
        return loss.detach().numpy()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    print(machine())
    images, labels = digits(BATCH["lenet"])
    contenders = {
        "job": lenet_job(),
        "PyTorch eager NCHW": torch_step(LeNet(), images, labels, torch.contiguous_format),
        "PyTorch eager channels_last": torch_step(LeNet(), images, labels, torch.channels_last),
    }
    report("LeNet, batch 100", alternate(contenders, 10, rounds), "job")
    images, labels = digits(BATCH["mlp"])
    flat = images.reshape(BATCH["mlp"], 784)
    contenders = {"job": mlp_job(), "PyTorch eager": torch_step(mlp(), flat, labels, torch.contiguous_format)}
    report("MLP 784-512-512-10, batch 128", alternate(contenders, 50, rounds), "job")


if __name__ == "__main__":
    main()
