"""Optimizers from configs, and the parameter groups they work on."""

from libai.optim.build import build_optimizer, get_default_optimizer_params

__all__ = ["build_optimizer", "get_default_optimizer_params"]
