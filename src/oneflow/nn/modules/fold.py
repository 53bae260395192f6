"""``flow.nn.modules.fold``: sliding windows, torch's."""

from torch.nn import Fold, Unfold

__all__ = ["Fold", "Unfold"]
