"""Whether the tensors of modules have changed, which a graph that does not train makes packed filters of.

They are the modules' own, and anybody may write into them. torch counts writes in each tensor's version, as graphs that
train do, but for those through ``.data`` or another view that autograd does not know of. Of those some are seen by
looking at a few numbers of each tensor: a step of an optimizer, an average or a file that is loaded change them all.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from torch import Tensor

from oneflow.engine.ops import native


def can_watch(tensors: Sequence[Tensor]) -> bool:
    """Whether something can be made of these, and their changes seen: memory without gaps on a CPU, with versions."""
    return (
        native.conv is not None
        and native.watch is not None
        and all(
            tensor.device.type == "cpu"
            and not tensor.is_inference()
            and tensor.numel() * tensor.itemsize % 4 == 0
            and _is_dense(tensor)
            for tensor in tensors
        )
    )


def _is_dense(tensor: Tensor) -> bool:
    expected = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride()), key=lambda pair: pair[1]):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class Watched:
    """Some tensors as they were when they were last looked at."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tuple(tensors)
        self._states = b""
        self._pieces = array("q")
        self._sample = 0

    def have_changed(self) -> bool:
        """Whether a tensor has other values, or other memory, than when this was last asked."""
        states = native.watch.states(self._tensors)  # type: ignore[union-attr]
        if states != self._states:
            self._pieces = array(
                "q",
                [
                    number
                    for tensor in self._tensors
                    for number in (tensor.data_ptr(), tensor.numel() * tensor.itemsize // 4)
                ],
            )
        sample = native.watch.sampled(self._pieces)  # type: ignore[union-attr]
        was = self._states, self._sample
        self._states, self._sample = states, sample
        return was != (states, sample)
