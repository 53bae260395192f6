"""``flow.cuda.amp``: mixed precision on GPUs, by the names of older programs."""

from oneflow.amp.grad_scaler import GradScaler, StaticGradScaler
from oneflow.cuda.amp.autocast_mode import autocast

__all__ = ["GradScaler", "StaticGradScaler", "autocast"]
