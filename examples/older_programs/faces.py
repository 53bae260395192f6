"""The head of a face recognition program of 2020: classes split over devices, a margin for the right one, a softmax
over all.

python examples/older_programs/faces.py --devices 2
"""

import argparse

import numpy as np

import oneflow as flow
import oneflow.typing as tp

PEOPLE, PIXELS, FEATURES, BATCH = 24, 20, 16, 32


def embedding(faces):
    x = flow.layers.dense(faces, 32, flow.math.relu, kernel_initializer=flow.xavier_normal_initializer(), name="fc1")
    return flow.layers.dense(x, FEATURES, kernel_initializer=flow.xavier_normal_initializer(), name="fc2")


def head(features, labels, margin):
    """Cosines of every face with every person, of the right one with the margin; each device has some of the people."""
    weight = flow.get_variable(
        "fc7-weight",
        (PEOPLE, FEATURES),
        initializer=flow.random_normal_initializer(stddev=0.1),
        distribute=flow.distribute.split(0),
    )
    features = flow.math.l2_normalize(input=features, axis=1, epsilon=1e-10)
    weight = flow.math.l2_normalize(input=weight, axis=1, epsilon=1e-10)
    features = flow.parallel_cast(features, distribute=flow.distribute.broadcast())
    cosines = flow.matmul(features, weight, transpose_b=True).with_distribute(flow.distribute.split(1))
    return flow.combined_margin_loss(cosines, labels, **margin) * 16.0


MARGINS = {"arc": {"m1": 1.0, "m2": 0.5, "m3": 0.0}, "cos": {"m1": 1.0, "m2": 0.0, "m3": 0.35}}


def train(devices, steps=60, kind="arc"):
    """The mean losses on made faces: a picture of each person, with noise."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)

    @flow.global_function(type="train")
    def insightface(
        faces: tp.Numpy.Placeholder((BATCH, PIXELS)), labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32)
    ) -> tp.Numpy:
        logits = head(embedding(faces), labels, MARGINS[kind])
        loss = flow.nn.distributed_sparse_softmax_cross_entropy_with_logits(labels, logits)
        rates = flow.optimizer.PiecewiseScalingScheduler(0.1, [40], 0.1)
        flow.optimizer.SGD(rates, momentum=0.9).minimize(loss)
        return loss

    random, losses = np.random.default_rng(0), []
    people = random.normal(size=(PEOPLE, PIXELS))
    for _ in range(steps):
        labels = random.integers(0, PEOPLE, BATCH)
        faces = people[labels] + 0.3 * random.normal(size=(BATCH, PIXELS))
        losses.append(float(insightface(faces.astype(np.float32), labels.astype(np.int32)).mean()))
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--margin", choices=sorted(MARGINS), default="arc")
    args = parser.parse_args()
    for number, loss in enumerate(train(args.devices, args.steps, args.margin)):
        if number % 10 == 0:
            print("step %d, loss %.4f" % (number, loss))
