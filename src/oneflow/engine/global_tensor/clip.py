"""Gradients clipped by their common norm, wherever they lie: parts of one are counted once, and several placements
together."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from oneflow.engine.global_tensor.tensor import is_global


def clip_grad_norm_(
    parameters: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Scales the gradients of all parameters by max_norm / (norm + 1e-6) where their common norm is above ``max_norm``;
    gives the norm. Of global tensors it is that of the logical gradients; all ranks call this."""
    listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    gradients = [parameter.grad for parameter in listed if parameter.grad is not None]
    if not any(map(is_global, gradients)):
        return torch.nn.utils.clip_grad_norm_(listed, max_norm, norm_type, error_if_nonfinite, foreach)
    with torch.no_grad():
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, norm_type)), norm_type)
        if error_if_nonfinite and not torch.isfinite(norm).item():
            raise RuntimeError(
                f"the norm of the gradients is {norm.item()} and they cannot be clipped; error_if_nonfinite=False "
                f"scales them all the same"
            )
        torch._foreach_mul_(gradients, torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm
