"""A residual net as it was written at the beginning of 2020: ``@flow.function`` with a config that has the optimizer,
and ``.get()``.

The form of 2019, with the settings inside of the body, is in examples/alexnet.

    python examples/older_programs/resnet_2020.py --devices 2
"""

import argparse

import numpy as np

import oneflow as flow
import oneflow.core.operator.op_conf_pb2 as op_conf_util

BATCH, SIZE, CLASSES = 16, 8, 4


def conv(x, name, filters, size, strides=1):
    weight = flow.get_variable(
        name + "-weight",
        shape=(filters, x.static_shape[1], size, size),
        dtype=x.dtype,
        initializer=flow.random_normal_initializer(stddev=0.2),
    )
    return flow.nn.conv2d(x, weight, strides, "SAME", "NCHW", 1, name=name)


def norm(x, name, activation=None):
    x = flow.layers.batch_normalization(inputs=x, axis=1, momentum=0.9, epsilon=1e-5, name=name)
    return flow.keras.activations.relu(x) if activation == op_conf_util.kRelu else x


def block(x, name, filters, strides):
    with flow.name_scope(name):
        short = norm(conv(x, "short", filters, 1, strides), "short_bn")
        x = norm(conv(x, "a", filters, 3, strides), "a_bn", op_conf_util.kRelu)
        return flow.keras.activations.relu(norm(conv(x, "b", filters, 3), "b_bn") + short)


def resnet(images):
    x = norm(conv(images, "stem", 8, 3), "stem_bn", op_conf_util.kRelu)
    x = block(block(x, "res1", 8, 1), "res2", 16, 2)
    x = flow.nn.avg_pool2d(x, ksize=SIZE // 2, strides=1, padding="VALID", data_format="NCHW")
    x = flow.reshape(x, [x.static_shape[0], -1])
    return flow.layers.dense(
        x,
        CLASSES,
        activation=op_conf_util.kNone,
        use_bias=True,
        kernel_initializer=flow.random_uniform_initializer(-0.1, 0.1),
        name="fc",
    )


def train(devices, steps=40):
    """The mean losses on pictures with a bright stripe, whose place is the class."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)
    config = flow.function_config()
    config.default_data_type(flow.float)
    config.default_distribute_strategy(flow.distribute.consistent_strategy())
    config.train.primary_lr(0.05)
    config.train.model_update_conf(dict(momentum_conf={"beta": 0.9}))

    @flow.function(config)
    def resnet_train_job(
        images=flow.FixedTensorDef((BATCH, 1, SIZE, SIZE)), labels=flow.FixedTensorDef((BATCH,), dtype=flow.int32)
    ):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, resnet(images), name="softmax_loss")
        flow.losses.add_loss(loss)
        return loss

    check_point = flow.train.CheckPoint()
    check_point.init()
    random, losses = np.random.default_rng(0), []
    for _ in range(steps):
        labels = random.integers(0, CLASSES, BATCH).astype(np.int32)
        images = 0.3 * random.normal(size=(BATCH, 1, SIZE, SIZE)).astype(np.float32)
        for image, label in zip(images, labels):
            image[0, :, 2 * label : 2 * label + 2] += 1
        losses.append(float(resnet_train_job(images, labels).get().mean()))
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    for number, loss in enumerate(train(args.devices, args.steps)):
        if number % 10 == 0:
            print("step %d, loss %.4f" % (number, loss))
