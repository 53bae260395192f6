"""The scheduler of a config."""

from __future__ import annotations

from typing import Any

import torch

from libai.config import instantiate
from oneflow.optim.lr_scheduler import LRScheduler


def build_lr_scheduler(cfg: Any, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """The scheduler that a config describes, for the rates of ``optimizer``. The config itself is left as it was."""
    return instantiate(cfg, optimizer=optimizer)
