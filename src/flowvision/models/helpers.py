"""Helpers that programs import from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import oneflow.nn as nn
from flowvision.layers.helpers import make_divisible

__all__ = ["make_divisible", "named_apply", "named_modules"]


def named_apply(
    fn: Callable[..., object], module: nn.Module, name: str = "", depth_first: bool = True, include_root: bool = False
) -> nn.Module:
    """Calls ``fn(module=, name=)`` for every module below ``module``, children before their parents unless told
    otherwise."""
    for below, found in named_modules(module, name, depth_first, include_root):
        fn(module=found, name=below)
    return module


def named_modules(
    module: nn.Module, name: str = "", depth_first: bool = True, include_root: bool = False
) -> Iterator[tuple[str, nn.Module]]:
    """(name, module) of every module below ``module``."""
    if not depth_first and include_root:
        yield name, module
    for child, found in module.named_children():
        yield from named_modules(found, f"{name}.{child}" if name else child, depth_first, include_root=True)
    if depth_first and include_root:
        yield name, module
