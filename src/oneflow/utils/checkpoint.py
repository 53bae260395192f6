"""``flow.utils.checkpoint``: parts of a model whose activations are computed again in the backward pass instead of
being kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.utils.checkpoint as torch_checkpoint

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **kwargs: Any) -> Any:
    """``function(*args, **kwargs)``, whose activations are computed again when its gradient is asked for.

    As ``torch.utils.checkpoint.checkpoint``, of which ``use_reentrant=False`` is the variant that works with any
    arguments and results.
    """
    return torch_checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], segments: int, input: Any, use_reentrant: bool = False, **kwargs: Any
) -> Any:
    """Runs modules one after the other, cut into ``segments`` parts; only what goes from part to part is kept."""
    return torch_checkpoint.checkpoint_sequential(functions, segments, input, use_reentrant=use_reentrant, **kwargs)
