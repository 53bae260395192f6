"""Trains a small convolutional network on MNIST; about 99.4 % of the test set is right after five epochs.

python mnist.py --out run                     all defaults; the model goes to run/model, the curve to run/loss.png
python mnist.py --data folder --epochs 10     other idx files of the same format
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

import oneflow as flow
import oneflow.typing as tp
from oneflow.data.mnist import Mnist, find_mnist, read_mnist

EVAL_BATCH = 500
LARGEST_SHIFT = 2
MEAN, STD = 0.1307, 0.3081  # of the training set's pixels, scaled to 0..1


def network(images, train):
    """Two convolutions with pooling and two dense layers; the logits of the ten digits."""
    weights = flow.variance_scaling_initializer(2.0, "fan_in", "random_normal", "NCHW")
    x = flow.layers.conv2d(
        images, 32, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=weights, name="conv1"
    )
    x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="VALID", data_format="NCHW", name="pool1")
    x = flow.layers.conv2d(x, 64, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=weights, name="conv2")
    x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="VALID", data_format="NCHW", name="pool2")
    x = flow.reshape(x, [x.shape[0], -1])
    x = flow.layers.dense(
        x, 512, activation=flow.nn.relu, kernel_initializer=flow.variance_scaling_initializer(2.0), name="dense1"
    )
    if train:
        x = flow.nn.dropout(x, rate=0.5, name="dropout")
    return flow.layers.dense(x, 10, kernel_initializer=flow.variance_scaling_initializer(1.0), name="dense2")


def make_jobs(batch_size, steps, lr):
    """The training job, which gives each image's loss, and the job that gives logits."""

    @flow.global_function(type="train")
    def train_job(
        images: tp.Numpy.Placeholder((batch_size, 1, 28, 28), dtype=flow.float),
        labels: tp.Numpy.Placeholder((batch_size,), dtype=flow.int32),
    ) -> tp.Numpy:
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images, train=True), name="loss")
        warmup = flow.optimizer.warmup.linear(steps=min(200, max(1, steps // 10)), start_multiplier=0.01)
        schedule = flow.optimizer.CosineScheduler(base_lr=lr, steps=steps, warmup=warmup)
        flow.optimizer.Adam(schedule, do_bias_correction=True).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def eval_job(images: tp.Numpy.Placeholder((EVAL_BATCH, 1, 28, 28), dtype=flow.float)) -> tp.Numpy:
        return network(images, train=False)

    return train_job, eval_job


def pixels(images: np.ndarray) -> np.ndarray:
    """Bytes to what the network takes: float32, one channel, mean 0 and deviation 1."""
    return ((images[:, None].astype(np.float32) / 255 - MEAN) / STD).astype(np.float32)


def shifted(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Each image moved by up to two pixels each way."""
    border = (LARGEST_SHIFT, LARGEST_SHIFT)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(images, ((0, 0), border, border)), images.shape[1:], axis=(1, 2)
    )
    rows, columns = rng.integers(0, 2 * LARGEST_SHIFT + 1, (2, len(images)))
    return windows[np.arange(len(images)), rows, columns]


def batches(mnist: Mnist, batch_size: int, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One epoch in a new order; images that fill no whole batch wait for the next one."""
    order = rng.permutation(len(mnist.train_images))
    for start in range(0, len(order) - batch_size + 1, batch_size):
        chosen = order[start : start + batch_size]
        yield pixels(shifted(mnist.train_images[chosen], rng)), mnist.train_labels[chosen].astype(np.int32)


def accuracy(eval_job, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images whose largest logit is at the label; the last batch is filled up and cut again."""
    right = 0
    for start in range(0, len(images), EVAL_BATCH):
        part = images[start : start + EVAL_BATCH]
        full = np.concatenate([part, np.zeros((EVAL_BATCH - len(part), 28, 28), np.uint8)])
        guesses = eval_job(pixels(full))[: len(part)].argmax(1)
        right += int((guesses == labels[start : start + EVAL_BATCH]).sum())
    return right / len(images)


def plot(losses: list[float], path: Path) -> None:
    """The loss of every step and its running mean over 50 steps."""
    window = min(50, len(losses))
    figure = Figure(figsize=(7, 4), layout="tight")  # made without pyplot it draws with Agg and needs no display
    axes = figure.subplots()
    axes.plot(losses, linewidth=0.4, alpha=0.5, label="step")
    axes.plot(
        np.arange(window - 1, len(losses)),
        np.convolve(losses, np.ones(window) / window, "valid"),
        label=f"mean of {window}",
    )
    axes.set(xlabel="step", ylabel="loss", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=120)


def train(mnist: Mnist, args: argparse.Namespace) -> list[float]:
    """Runs the epochs, prints a line for each, and gives the loss of every step."""
    per_epoch = len(mnist.train_images) // args.batch_size
    steps = min(args.epochs * per_epoch, args.max_steps or sys.maxsize)
    train_job, eval_job = make_jobs(args.batch_size, steps, args.lr)
    rng = np.random.default_rng(args.seed)
    losses: list[float] = []
    with tqdm(total=steps, unit="step", disable=not sys.stderr.isatty()) as bar:
        for epoch in range(args.epochs):
            begin = len(losses)
            for images, labels in batches(mnist, args.batch_size, rng):
                if len(losses) == steps:
                    break
                losses.append(float(train_job(images, labels).mean()))
                bar.update()
            if len(losses) > begin:
                right = accuracy(eval_job, mnist.test_images, mnist.test_labels)
                bar.write(
                    f"epoch {epoch + 1}: loss {np.mean(losses[begin:]):.4f}, test accuracy {right:.2%}", file=sys.stdout
                )
    return losses


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-3, help="the largest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="of the order and the shifts of the images")
    parser.add_argument("--max_steps", type=int, default=0, help="stop after so many steps; 0: all of them")
    parser.add_argument(
        "--data", default=None, help="folder with the four idx files; without it they are looked for and downloaded"
    )
    parser.add_argument("--out", type=Path, default=Path("mnist_out"), help="folder for the model and the curve")
    args = parser.parse_args(argv)
    if args.epochs < 1 or args.batch_size < 1 or args.max_steps < 0:
        parser.error("--epochs and --batch_size are at least 1, --max_steps at least 0")
    if (args.out / "model").exists():
        parser.error(f"{args.out / 'model'} exists; remove it or choose another --out")
    return args


def main() -> None:
    args = parse()
    mnist = read_mnist(find_mnist(args.data))
    if args.batch_size > len(mnist.train_images):
        sys.exit(f"--batch_size {args.batch_size} is more than the {len(mnist.train_images)} training images")
    losses = train(mnist, args)
    args.out.mkdir(parents=True, exist_ok=True)
    flow.checkpoint.save(str(args.out / "model"))
    plot(losses, args.out / "loss.png")
    print(f"model saved to {args.out / 'model'}")


if __name__ == "__main__":
    main()
