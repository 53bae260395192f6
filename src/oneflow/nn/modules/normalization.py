"""``flow.nn.modules.normalization``: normalisation over layers and groups. ``GroupNorm`` inside a job is the job's
op."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import LayerNorm, Module, Parameter

from oneflow.compat.eras import EitherClass
from oneflow.nn import _norm as jobs

__all__ = ["GroupNorm", "LayerNorm", "RMSLayerNorm", "RMSNorm"]


class GroupNorm(torch.nn.GroupNorm, metaclass=EitherClass):
    """Normalises each sample over groups of its channels. The parameters are torch's."""

    _of_job = staticmethod(jobs.GroupNorm)


class RMSNorm(torch.nn.RMSNorm):
    """x / sqrt(mean(x²) + eps) · weight; ``eps`` is 1e-5 unless said, where torch takes that of the dtype."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape = normalized_shape if isinstance(normalized_shape, int) else list(normalized_shape)
        super().__init__(shape, eps, elementwise_affine, device, dtype)


def rms_layer_norm(hidden_states: Tensor, weight: Tensor, variance_epsilon: float) -> Tensor:
    """``RMSLayerNorm`` as a function of its weight."""
    wide = hidden_states.to(torch.promote_types(hidden_states.dtype, torch.float32))
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + variance_epsilon)
    return weight * scaled.to(weight.dtype)


class RMSLayerNorm(Module):
    """T5's normalisation: x / sqrt(mean(x²) + eps) over the last dimension, computed in float32, times ``weight`` of
    (hidden_size,)."""

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        return rms_layer_norm(hidden_states, self.weight, self.variance_epsilon)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.variance_epsilon}"
