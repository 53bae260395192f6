"""The path ``oneflow.cuda.amp.autocast_mode``."""

from __future__ import annotations

import torch


class autocast(torch.autocast):
    """``flow.autocast("cuda", ...)``. Without a GPU it warns and does nothing, as torch's does."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
