"""DCGAN as it was written in 2020: two train jobs, one for the generator and one for the discriminator, that share all
their variables.

python examples/older_programs/dcgan.py --devices 2
"""

import argparse

import numpy as np

import oneflow as flow
import oneflow.typing as tp

BATCH, NOISE, SIZE = 16, 8, 8


def normal():
    return flow.random_normal_initializer(stddev=0.1)


def deconv(x, channels, name, trainable):
    batch, before, height, width = x.shape
    weight = flow.get_variable(name + "-weight", (before, channels, 4, 4), initializer=normal(), trainable=trainable)
    return flow.nn.conv2d_transpose(
        x, weight, strides=2, output_shape=(batch, channels, 2 * height, 2 * width), padding="SAME", data_format="NCHW"
    )


def generator(z, trainable):
    x = flow.layers.dense(z, 16 * 2 * 2, use_bias=False, kernel_initializer=normal(), name="g_fc", trainable=trainable)
    x = flow.layers.batch_normalization(x, axis=1, name="g_bn1", trainable=trainable)
    x = flow.nn.leaky_relu(flow.reshape(x, (-1, 16, 2, 2)), 0.3)
    x = flow.nn.leaky_relu(deconv(x, 8, "g_deconv1", trainable), 0.3)
    return flow.math.tanh(deconv(x, 1, "g_deconv2", trainable))


def conv(x, channels, name, trainable):
    """Without a name for the op: in one job it comes twice, for drawn and for real pictures, with the same variable."""
    weight = flow.get_variable(
        name + "-weight", (channels, x.shape[1], 4, 4), initializer=normal(), trainable=trainable
    )
    return flow.nn.conv2d(x, weight, strides=2, padding="SAME", data_format="NCHW")


def discriminator(images, trainable):
    x = images
    for i, channels in enumerate((8, 16)):
        x = flow.nn.leaky_relu(conv(x, channels, "d_conv%d" % i, trainable), 0.3)
    x = flow.reshape(x, (x.shape[0], -1))
    return flow.matmul(x, flow.get_variable("d_fc-weight", (x.shape[1], 1), initializer=normal(), trainable=trainable))


def loss_of(scores, is_real):
    labels = flow.constant_like(scores, 1.0 if is_real else 0.0)
    return flow.nn.sigmoid_cross_entropy_with_logits(labels, scores)


def optimizer():
    return flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [5e-4]), beta1=0.5)


def pictures(random):
    """A bright square somewhere on black."""
    images = -np.ones((BATCH, 1, SIZE, SIZE), np.float32)
    for image in images:
        y, x = random.integers(0, SIZE - 4, 2)
        image[0, y : y + 4, x : x + 4] = 1
    return images


def train(devices, steps=60):
    """The losses of the generator, then those of the discriminator."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)

    @flow.global_function(type="train")
    def train_generator(z: tp.Numpy.Placeholder((BATCH, NOISE))) -> tp.Numpy:
        loss = loss_of(discriminator(generator(z, True), False), True)
        optimizer().minimize(loss)
        return loss

    @flow.global_function(type="train")
    def train_discriminator(
        z: tp.Numpy.Placeholder((BATCH, NOISE)), images: tp.Numpy.Placeholder((BATCH, 1, SIZE, SIZE))
    ) -> tp.Numpy:
        fake = loss_of(discriminator(generator(z, False), True), False)
        loss = fake + loss_of(discriminator(images, True), True)
        optimizer().minimize(loss)
        return loss

    random, losses = np.random.default_rng(0), ([], [])
    for _ in range(steps):
        z = random.normal(size=(BATCH, NOISE)).astype(np.float32)
        losses[1].append(float(train_discriminator(z, pictures(random)).mean()))
        losses[0].append(float(train_generator(z).mean()))
    return losses[0] + losses[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    found = train(args.devices, args.steps)
    for step in range(0, args.steps, 10):
        print("step %d, generator %.4f, discriminator %.4f" % (step, found[step], found[args.steps + step]))
