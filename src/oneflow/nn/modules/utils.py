"""``flow.nn.modules.utils``: one number for several dimensions, as modules that users write take it."""

from torch.nn.modules.utils import _ntuple, _pair, _quadruple, _single, _triple

__all__ = ["_ntuple", "_pair", "_quadruple", "_single", "_triple"]
