"""The networks of examples/cnns learn the same on two ranks as on one."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Run, assert_equal, begin, variables
from networks_of_examples import MODELS, Options

import oneflow as flow

BATCH, STEPS = 4, 2
# A batch norm over one pixel of four pictures divides by next to nothing; with more the sums of two ranks may be rounded otherwise.
SIZES = {"resnet50": 64, "resnext50": 64, "vgg": 32, "alexnet": 67, "inceptionv3": 75, "mobilenetv2": 64}


def train(name: str, devices: int) -> Run:
    begin(devices)
    size = SIZES[name]

    @flow.global_function(type="train")
    def job(images=flow.FixedTensorDef((BATCH, 3, size, size)), labels=flow.FixedTensorDef((BATCH,), dtype=flow.int32)):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, MODELS[name].logits(images, Options(num_classes=4)))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.001]), momentum=0.9).minimize(loss)
        return loss

    images = np.random.default_rng(0).normal(size=(BATCH, 3, size, size)).astype(np.float32)
    losses = np.stack([job(images, np.arange(BATCH, dtype=np.int32)).get() for _ in range(STEPS)])
    return Run(losses, variables())


@pytest.mark.parametrize("name", list(MODELS))
def test_a_network_learns_the_same_on_two_ranks(name: str) -> None:
    assert_equal(train(name, 2), train(name, 1), tolerance=1e-4)
