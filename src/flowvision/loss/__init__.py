"""Losses for soft and smoothed labels."""

from flowvision.loss.cross_entropy import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy

__all__ = ["LabelSmoothingCrossEntropy", "SoftTargetCrossEntropy"]
