"""The jobs that are measured. They use public names of oneflow only, so any commit can be measured with them.

A function called after a network defines the job; one that ends in ``_step`` gives what is measured: a call of it, from
arrays to results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import oneflow as flow

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "cnns"))
from models import MODELS, Options  # noqa: E402 - the examples are a folder, not a package

Step = Callable[[], object]
# Filters, kernel size, strides, padding, and whether a pool follows.
ALEXNET = [
    (64, 11, 4, "VALID", True),
    (192, 5, 1, "SAME", True),
    (384, 3, 1, "SAME", False),
    (384, 3, 1, "SAME", False),
    (256, 3, 1, "SAME", True),
]


def digits(batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(batch, 1, 28, 28)).astype(np.float32), rng.integers(0, 10, batch).astype(np.int32)


def descent(rate: float) -> flow.FunctionConfig:
    """The settings of a job that trains by plain gradient descent."""
    made = flow.function_config()
    made.train.primary_lr(rate)
    made.train.model_update_conf({"naive_conf": {}})
    return made


def affine_step() -> Step:
    """The smallest job."""

    @flow.global_function()
    def affine(x=flow.FixedTensorDef((4,))):
        return x * 2 + 1

    x = np.arange(4, dtype=np.float32)
    return lambda: affine(x).get()


def lenet(batch: int) -> Callable[..., Any]:
    """The network of the quick start."""

    @flow.global_function(descent(0.01))
    def lenet_train(
        images=flow.FixedTensorDef((batch, 1, 28, 28)), labels=flow.FixedTensorDef((batch,), dtype=flow.int32)
    ):
        init = flow.truncated_normal(0.1)
        x = flow.layers.conv2d(
            images, 32, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=init, name="conv1"
        )
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", name="pool1")
        x = flow.layers.conv2d(x, 64, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=init, name="conv2")
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", name="pool2")
        x = flow.reshape(x, [x.shape[0], -1])
        x = flow.layers.dense(x, 512, activation=flow.nn.relu, kernel_initializer=init, name="dense1")
        logits = flow.layers.dense(x, 10, kernel_initializer=init, name="dense2")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.losses.add_loss(loss)
        return loss

    return lenet_train


def lenet_step(batch: int) -> Step:
    job, (images, labels) = lenet(batch), digits(batch)
    return lambda: job(images, labels).get()


def lenet_step_on(devices: int, batch: int) -> Step:
    """LeNet on workers, on this batch all together; they have started when this returns."""
    flow.config.cpu_device_num(devices)
    step = lenet_step(batch)
    step()
    return step


def mlp_step(batch: int) -> Step:
    """784-512-512-10."""

    @flow.global_function(descent(0.01))
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


def random_batch(batch: int, pixels: int) -> tuple[Any, Any]:
    """Pictures and labels that the job makes itself, inside its body."""
    images = flow.data.decode_random((3, pixels, pixels), flow.float32, batch, name="images")
    return images, flow.data.decode_random(
        (), flow.int32, batch, flow.random_uniform_initializer(0, 1000, flow.int32), name="labels"
    )


def alexnet_step(batch: int, pixels: int, units: int = 4096) -> Step:
    """AlexNet without biases, its hidden dense layers of so many units, trained by plain gradient descent."""

    @flow.global_function(descent(0.001))
    def alexnet():
        he = flow.variance_scaling_initializer(2.0, "fan_in", "random_normal")
        x, labels = random_batch(batch, pixels)
        for number, (filters, kernel, strides, padding, pooled) in enumerate(ALEXNET):
            x = flow.layers.conv2d(
                x, filters, kernel, strides, padding, use_bias=False, kernel_initializer=he, name=f"conv{number}"
            )
            x = flow.nn.relu(x)
            x = flow.nn.avg_pool2d(x, 3, 2, "VALID") if pooled else x
        x = flow.reshape(x, (batch, -1))
        for number in range(2):
            x = flow.layers.dense(x, units, flow.nn.relu, use_bias=False, kernel_initializer=he, name=f"fc{number}")
            x = flow.nn.dropout(x, rate=0.5)
        logits = flow.layers.dense(x, 1001, use_bias=False, kernel_initializer=he, name="fc2")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        flow.losses.add_loss(loss)
        return loss

    return lambda: alexnet().get()


def cnn(name: str, batch: int, pixels: int) -> Callable[..., Any]:
    """A network of examples/cnns, trained with momentum."""

    @flow.global_function(type="train")
    def train():
        images, labels = random_batch(batch, pixels)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, MODELS[name].logits(images, Options(1000)))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.001]), momentum=0.9).minimize(loss)
        return loss

    return train


def cnn_step(name: str, batch: int, pixels: int) -> Step:
    job = cnn(name, batch, pixels)
    return lambda: job().get()


def resnet50_predict(pixels: int) -> Callable[..., Any]:
    """The class probabilities of one picture."""

    @flow.global_function()
    def predict(images=flow.FixedTensorDef((1, 3, pixels, pixels))):
        return flow.nn.softmax(MODELS["resnet50"].logits(images, Options(1000)))

    return predict
