"""Detect changes of module tensors between calls of a graph that does not train.

Such a graph keeps values computed from its parameters, for example packed filters. Users may write to the parameters
at any time. Writes that autograd sees change a tensor's version, and ``p.data = other`` changes its address. Writes
through ``p.data`` change neither, so a few elements of each tensor are compared too: an optimizer step, a moving average
or a loaded checkpoint changes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from oneflow.engine.ops import native

_SAMPLES = 4


def can_watch(tensors: Sequence[Tensor]) -> bool:
    """Returns whether values of these tensors may be kept: dense CPU memory with version counters."""
    return native.conv is not None and all(
        tensor.device.type == "cpu" and not tensor.is_inference() and _is_dense(tensor) for tensor in tensors
    )


def _is_dense(tensor: Tensor) -> bool:
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride()), key=lambda pair: pair[1]):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class Watched:
    """Tensors and their state at the last check."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._tensors = tuple(tensors)
        self._states: list[tuple[int, int]] = []
        self._views: dict[torch.dtype, list[Tensor]] = {}
        self._samples: list[Tensor] = []

    def have_changed(self) -> bool:
        """Returns whether a tensor was written to or moved since the last call."""
        states = [(tensor._version, tensor.data_ptr()) for tensor in self._tensors]
        is_same = states == self._states
        if not is_same:
            self._views = _sample_views(self._tensors)
        samples = [torch.cat(views).view(torch.uint8) for views in self._views.values()]
        is_same = is_same and all(map(torch.equal, samples, self._samples))
        self._states, self._samples = states, samples
        return not is_same


def _sample_views(tensors: Iterable[Tensor]) -> dict[torch.dtype, list[Tensor]]:
    """Returns views of evenly spaced elements of each tensor and of its last one, by dtype."""
    views: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        count, memory = tensor.numel(), tensor.detach()
        if count:
            flat = memory.as_strided((count,), (1,))
            views.setdefault(tensor.dtype, []).extend([flat[:: max(1, -(-count // _SAMPLES))], flat[-1:]])
    return views
