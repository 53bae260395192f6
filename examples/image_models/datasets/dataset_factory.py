"""Data sets by name. A new one: write <dataset_name>.py in this folder with parse_fn(example), and name it in
datasets_map.

Its file may say ``import tensorflow as tf``, as cifar10.py does; where TensorFlow is not installed fastnn.tf stands in
for it.
"""

from pathlib import Path

from fastnn.datasets.dataset_factory import datasets_map, get_dataset_iterator

__all__ = ["datasets_map", "get_dataset_iterator"]

datasets_map["cifar10"] = Path(__file__).with_name("cifar10.py")
