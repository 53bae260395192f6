"""The networks of examples/cnns learn the same on two ranks as on one: dense layers with dropout, batch norm and sums,
grouped convolutions, branches that are joined. VGG and ResNeXt are made of the same ops."""

from __future__ import annotations

import numpy as np
import pytest
from example_programs import MODELS, Options
from nets import Run, assert_equal, begin, variables

import oneflow as flow

BATCH, STEPS = 4, 2


def train(name: str, devices: int) -> Run:
    """In float64: batch norm over the last pixel of four pictures makes much of the last bits of float32."""
    begin(devices)
    config, size = flow.function_config(), MODELS[name].smallest
    config.default_data_type(flow.float64)

    @flow.global_function("train", config)
    def job(
        images=flow.FixedTensorDef((BATCH, 3, size, size), dtype=flow.float64),
        labels=flow.FixedTensorDef((BATCH,), dtype=flow.int32),
    ):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(
            labels, MODELS[name].logits(images, Options(num_classes=4))
        )
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.001]), momentum=0.9).minimize(loss)
        return loss

    images = np.random.default_rng(0).normal(size=(BATCH, 3, size, size))
    losses = np.stack([job(images, np.arange(BATCH, dtype=np.int32)).get() for _ in range(STEPS)])
    return Run(losses, variables())


@pytest.mark.parametrize("name", ["alexnet", "resnet50", "mobilenetv2", "inceptionv3"])
def test_a_network_learns_the_same_on_two_ranks(name: str) -> None:
    assert_equal(train(name, 2), train(name, 1), tolerance=1e-5)
