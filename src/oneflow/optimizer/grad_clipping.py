"""``flow.optimizer.grad_clipping``."""

from __future__ import annotations

from dataclasses import dataclass

from oneflow.engine.core.number import flag, number

__all__ = ["by_global_norm"]


@dataclass(frozen=True)
class ClipByGlobalNorm:
    """``historical`` is OneFlow's formula g * min(1/|g|, 1/c), which differs from the usual one for c other than 1."""

    clip_norm: float
    historical: bool = False


@dataclass(frozen=True)
class ClipGradNorm:
    """Gradients of a parameter group of ``flow.optim`` are scaled by max_norm / (norm + 1e-6) where their common
    p-norm, p being ``norm_type``, is so large that this is below 1."""

    max_norm: float
    norm_type: float = 2.0


def by_global_norm(clip_norm: float, historical: bool = False) -> ClipByGlobalNorm:
    """Scales all gradients of the optimizer together so that their norm is at most ``clip_norm``."""
    return ClipByGlobalNorm(number("clip_norm", clip_norm, above=0), flag("historical", historical))
