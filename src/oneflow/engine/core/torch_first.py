"""Import torch with the garbage collector paused: its hundred thousand objects live for ever."""

from oneflow.engine.core.collector import paused

with paused():
    import torch

__all__ = ["torch"]
