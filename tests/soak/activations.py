"""Functions of one element, which rows of all kinds of layers draw from."""

from __future__ import annotations

import torch
import torch.nn.functional as F

SMOOTH = (
    torch.tanh,
    torch.sigmoid,
    F.gelu,
    F.silu,
    F.mish,
    F.softplus,
    F.elu,
    F.softsign,
    F.logsigmoid,
    torch.sin,
    torch.atan,
    torch.erf,
    lambda x: F.gelu(x, approximate="tanh"),
    lambda x: F.celu(x, 0.7),
    lambda x: torch.log1p(x * x),
    lambda x: (x * x + 0.5).rsqrt() * x,
    lambda x: torch.exp(-x.abs()) * x,
    lambda x: x / (1.0 + x.square()),
    lambda x: torch.asinh(x) - 0.1 * torch.cos(x),
    lambda x: torch.logaddexp(x, -x * 0.5),
    lambda x: torch.hypot(x, x * 0.3 + 0.2),
    lambda x: torch.lerp(x, x.tanh(), 0.3),
    lambda x: torch.addcmul(x, x.sin(), x.cos(), value=0.4),
    lambda x: F.selu(x) * 0.5,
    F.tanhshrink,
    lambda x: torch.pow(x.square() + 0.1, 0.3),
    lambda x: torch.special.expit(x) * torch.expm1(-x.square()),
    lambda x: torch.sinh(x.tanh()) + torch.expm1(x.clamp(max=1.0)) * 0.1,
)
"""Strictly increasing, or at least without intervals on which they are constant."""

FLAT = (
    F.relu,
    F.relu6,
    F.hardtanh,
    F.hardswish,
    F.hardsigmoid,
    lambda x: x.clamp(-0.7, 0.9),
    lambda x: x.clamp(min=-0.3),
    lambda x: F.threshold(x, 0.1, -0.2),
    lambda x: F.softshrink(x, 0.2),
    lambda x: F.hardshrink(x, 0.2),
    lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    lambda x: torch.where(x > 0.5, 0.5, x),
    lambda x: x.masked_fill(x > 0.6, 0.1),
    lambda x: torch.maximum(x, torch.full_like(x, -0.2)),
    lambda x: x * (x.detach() > 0.1),
)
"""Constant on an interval: different inputs give equal outputs."""

KINKED = (
    lambda x: F.leaky_relu(x, 0.1),
    torch.abs,
    lambda x: torch.where(x > 0, x, x.exp() - 0.9),
    lambda x: torch.minimum(x, x * 0.5 + 0.013),
)
"""Not differentiable at single points."""
