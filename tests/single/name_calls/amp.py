"""``oneflow.amp``."""

from __future__ import annotations

import torch

from oneflow import amp


def _autocast() -> None:
    with amp.autocast("cpu"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


def _decorator() -> None:
    double = amp.autocast_decorator(amp.autocast("cpu"), lambda x: x @ x)
    assert double(torch.ones(2, 2)).dtype == torch.bfloat16


def _scaler() -> None:
    scaler = amp.GradScaler(init_scale=4.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=10)
    assert scaler.scale(torch.tensor(3.0)).item() == 12.0


def _static() -> None:
    assert amp.StaticGradScaler(4.0).scale(torch.tensor(3.0)).item() == 12.0


CALLS = {
    "oneflow.amp.GradScaler": _scaler,
    "oneflow.amp.StaticGradScaler": _static,
    "oneflow.amp.autocast": _autocast,
    "oneflow.amp.autocast_decorator": _decorator,
}
