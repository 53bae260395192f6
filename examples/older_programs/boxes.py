"""A detector in the way of YOLO programs of 2020: the mirrored view, and on every device pictures with as many boxes as
they have.

python examples/older_programs/boxes.py --devices 2
"""

import argparse

import numpy as np

import oneflow as flow
import oneflow.typing as tp

PICTURES, MOST, FEATURES = (
    8,
    6,
    12,
)  # pictures in all, boxes of one device's pictures at most per picture, numbers that describe a place


def train(devices, steps=60):
    """The mean losses. A box is found from the features at its place; each device has its own pictures and so its own
    number of boxes."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())
    most = PICTURES // devices * MOST

    @flow.global_function(type="train", function_config=config)
    def detector(
        features: tp.ListNumpy.Placeholder((most, FEATURES)), boxes: tp.ListNumpy.Placeholder((most, 4))
    ) -> tp.ListNumpy:
        x = flow.layers.dense(
            features, 24, flow.math.tanh, kernel_initializer=flow.xavier_uniform_initializer(), name="places"
        )
        found = flow.layers.dense(x, 4, kernel_initializer=flow.xavier_uniform_initializer(), name="boxes")
        loss = flow.math.reduce_sum(flow.smooth_l1_loss(found, boxes), axis=[1])
        # The gradients of the devices are added up, each the mean of its own boxes.
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1 / devices])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    random, losses = np.random.default_rng(0), []
    rule = random.normal(size=(FEATURES, 4)) / 3
    for _ in range(steps):
        count = (
            int(random.integers(1, MOST)) * PICTURES // devices
        )  # the same on each device, so that one device trains the same
        features = random.normal(size=(devices * count, FEATURES))
        boxes = np.tanh(features @ rule)
        fed = [[piece.astype(np.float32) for piece in np.split(values, devices)] for values in (features, boxes)]
        losses.append(float(np.concatenate(detector(*fed)).mean()))
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    for number, loss in enumerate(train(args.devices, args.steps)):
        if number % 10 == 0:
            print("step %d, loss %.4f" % (number, loss))
