"""``flow.amp``: mixed precision. ``autocast`` is torch's, also on the CPU, where it computes in bfloat16."""

from oneflow.amp import autocast_mode, grad_scaler
from oneflow.amp.autocast_mode import autocast, autocast_decorator
from oneflow.amp.grad_scaler import GradScaler, StaticGradScaler

__all__ = ["GradScaler", "StaticGradScaler", "autocast", "autocast_decorator", "autocast_mode", "grad_scaler"]
