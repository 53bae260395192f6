"""Data sets whose samples are Instances: ``images``, and ``labels`` for the last stage."""

from libai.data.datasets.cifar import CIFAR10Dataset, CIFAR100Dataset
from libai.data.datasets.imagenet import ImageNetDataset
from libai.data.datasets.mnist import MNISTDataset

__all__ = ["CIFAR100Dataset", "CIFAR10Dataset", "ImageNetDataset", "MNISTDataset"]
