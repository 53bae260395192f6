"""MNIST in batches, scaled as this example's networks were trained: (x - 128) / 255."""

from __future__ import annotations

import os

import numpy as np

from oneflow.data.mnist import find_mnist, in_batches, read_mnist


def load_data(
    train_batch_size: int = 100,
    test_batch_size: int = 100,
    data_format: str = "NCHW",
    folder: str | os.PathLike[str] | None = None,
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """((train_images, train_labels), (test_images, test_labels)); the first axis counts the batches."""
    mnist = read_mnist(find_mnist(folder))
    return (
        in_batches(mnist.train_images, mnist.train_labels, train_batch_size, data_format, offset=128),
        in_batches(mnist.test_images, mnist.test_labels, test_batch_size, data_format, offset=128),
    )
