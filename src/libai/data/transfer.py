"""Batches on their way from a worker to the program: through memory that both have, without a file for every tensor."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from libai.data.structures import SLOT_BYTES, DistTensorData, Instance

_ALIGN = 64


class Mailbox:
    """The memory between one worker and the program, made before the worker is forked.

    ``put`` has the worker copy a batch into the next of ``slots`` slots, ``taken`` has the program copy it out. A slot
    is written again after so many batches: the program takes them in order, so at most ``slots - 1`` may be on their
    way.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._memory = mmap.mmap(-1, slots * SLOT_BYTES)  # costs what is written to
        self._next = 0

    def put(self, batch: Any) -> Any:
        """What to send in place of a batch; the batch itself if it is no Instance of tensors, or larger than a slot."""
        if type(batch) is not Instance or not all(map(_is_plain, batch.get_fields().values())):
            return batch
        begin = self._next * SLOT_BYTES
        parts, end = {}, begin
        for name, value in batch.get_fields().items():
            parts[name] = _Part.of(value, end)
            end += -(-parts[name].bytes // _ALIGN) * _ALIGN
        if end > begin + SLOT_BYTES:
            return batch
        for part, value in zip(parts.values(), batch.get_fields().values()):
            part.view(self._memory).copy_(_tensor(value))
        self._next = (self._next + 1) % self._slots
        return Sent(parts)

    def taken(self, sent: Sent) -> Instance:
        """The batch that was put."""
        return Instance(**{name: part.taken(self._memory) for name, part in sent.parts.items()})


@dataclass
class Sent:
    """A batch that lies in a mailbox; ``worker`` says in whose."""

    parts: dict[str, _Part]
    worker: int = 0


@dataclass
class _Part:
    begin: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: tuple[list[str], int] | None

    @staticmethod
    def of(value: Any, begin: int) -> _Part:
        tensor = _tensor(value)
        return _Part(
            begin,
            tensor.dtype,
            tuple(tensor.shape),
            (value.sbp_list, value.placement_idx) if type(value) is DistTensorData else None,
        )

    @property
    def bytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def view(self, memory: mmap.mmap) -> torch.Tensor:
        if not self.bytes:
            return torch.empty(self.shape, dtype=self.dtype)
        return torch.frombuffer(memory, dtype=self.dtype, count=torch.Size(self.shape).numel(), offset=self.begin).view(
            self.shape
        )

    def taken(self, memory: mmap.mmap) -> Any:
        tensor = torch.empty(self.shape, dtype=self.dtype)
        if self.bytes:  # by one thread: torch's others would wait for cores that the workers have
            tensor.view(-1).view(torch.uint8).numpy()[:] = np.frombuffer(memory, np.uint8, self.bytes, self.begin)
        return tensor if self.layout is None else DistTensorData.of_batch(tensor, *self.layout)


def _tensor(value: Any) -> Any:
    return value.tensor if type(value) is DistTensorData else value


def _is_plain(value: Any) -> bool:
    tensor = _tensor(value)
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not tensor.requires_grad
    )
