"""The path ``oneflow.amp.grad_scaler``."""

from oneflow.optim.grad_scaler import GradScaler, StaticGradScaler

__all__ = ["GradScaler", "StaticGradScaler"]
