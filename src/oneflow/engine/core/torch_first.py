"""Loads torch before anything else does, with the collector of garbage paused: it makes some hundred thousand objects,
and all of them stay."""

from oneflow.engine.core.collector import paused

with paused():
    import torch

__all__ = ["torch"]
