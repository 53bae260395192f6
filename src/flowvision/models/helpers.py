"""Helpers that programs import from here."""

from flowvision.layers.helpers import make_divisible

__all__ = ["make_divisible"]
