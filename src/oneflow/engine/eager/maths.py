"""Element by element, along dims, and over whole tensors: where OneFlow's defaults or names differ."""

from __future__ import annotations

from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError


def softmax(input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    """exp(x) / sum of exp(x) along ``dim``, the last if none is given."""
    return torch.softmax(input, dim, dtype=dtype)


def log_softmax(input: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The logarithm of ``softmax`` along ``dim``, the last if none is given."""
    return torch.log_softmax(input, dim, dtype=dtype)


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    """x * sigmoid(1.702 x), an approximation of gelu."""
    return x * torch.sigmoid(1.702 * x)


def norm(
    input: torch.Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """The norm of a vector or matrix, or of the dims that ``dim`` names."""
    return torch.norm(input, p, dim, keepdim, dtype=dtype)


def cross(input: torch.Tensor, other: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """The cross product along ``dim``, the first of size 3 if none is given."""
    if dim is None:
        dim = next((d for d, size in enumerate(input.shape) if size == 3), None)
    if dim is None:
        raise ArgumentError(f"flow.cross takes tensors with a dim of size 3, got {tuple(input.shape)}")
    return torch.linalg.cross(input, other, dim=dim)


def div_(input: torch.Tensor, other: Any) -> torch.Tensor:
    """Divides ``input`` in place."""
    return input.div_(other)


def erfinv_(input: torch.Tensor) -> torch.Tensor:
    """Writes the inverse error function of ``input`` over it."""
    return input.erfinv_()


def stft(
    input: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool = False,
) -> torch.Tensor:
    """Fourier transforms of windows that overlap. The last dim holds real and imaginary part, unless
    ``return_complex``."""
    size = n_fft if win_length is None else win_length
    even = torch.ones(size, dtype=input.dtype, device=input.device) if window is None else window
    made = torch.stft(
        input, n_fft, hop_length, win_length, even, center, pad_mode, normalized, onesided, return_complex=True
    )
    return made if return_complex else torch.view_as_real(made)


def roc_auc_score(label: torch.Tensor, pred: torch.Tensor) -> torch.Tensor:
    """The area under the ROC curve, shape (1,): how often a prediction for a 1 is above one for a 0, half for equal
    ones."""
    if label.shape != pred.shape:
        raise ArgumentError(
            f"roc_auc_score takes as many labels as predictions, got {tuple(label.shape)} and {tuple(pred.shape)}"
        )
    positive = label.flatten() != 0
    count, others = int(positive.sum()), int((~positive).sum())
    if not count or not others:
        raise ArgumentError(
            f"roc_auc_score needs labels of both kinds, got {count} that are not 0 and {others} that are"
        )
    _, place, counts = torch.unique(pred.flatten(), return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    rank = (last - (counts - 1) / 2.0)[place]  # equal predictions share the mean of their ranks
    area = (rank[positive].sum() - count * (count + 1) / 2.0) / (count * others)
    return area.float().reshape(1)
