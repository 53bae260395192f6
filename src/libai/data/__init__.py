"""Samples, batches and the loaders that make them."""

from libai.data.build import (
    build_image_test_loader,
    build_image_train_loader,
    build_nlp_test_loader,
    build_nlp_train_val_test_loader,
)
from libai.data.structures import DistTensorData, Instance

__all__ = [
    "DistTensorData",
    "Instance",
    "build_image_test_loader",
    "build_image_train_loader",
    "build_nlp_test_loader",
    "build_nlp_train_val_test_loader",
]
