"""``flow.nn.parameter``: torch's parameters."""

from torch.nn.parameter import Parameter

__all__ = ["Parameter"]
