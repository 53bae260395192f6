"""``flow.nn.modules.flatten``: flattening, torch's."""

from torch.nn import Flatten

__all__ = ["Flatten"]
