"""``oneflow.engine.data.formats.mnist``: finds, downloads and reads the MNIST files."""

from oneflow.engine.data.formats.mnist_files import Mnist, cache_folder, find_mnist, in_batches, load_mnist, read_mnist

__all__ = ["Mnist", "cache_folder", "find_mnist", "in_batches", "load_mnist", "read_mnist"]
