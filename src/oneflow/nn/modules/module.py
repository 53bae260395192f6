"""``flow.nn.modules.module``: a module is torch's."""

from torch.nn import Module

__all__ = ["Module"]
