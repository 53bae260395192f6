"""Batches of Instances made by one call of a data set's ``__getitem__``, where that gives what a call for each sample
gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from libai.data.structures import DistTensorData, Instance
from oneflow.engine.data.at_once import BatchIndex, NotAtOnce, at_once


class Together:
    """Asks ``dataset`` for whole batches. The first is made one by one as well: if they are not the same, bit for bit,
    or the data set cannot be asked so, every batch is made of single samples."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._is_possible: bool | None = None  # None until the first batch

    def batch(self, indices: Sequence[int], one_by_one: Callable[[], Any]) -> Any:
        """The batch of these samples; ``one_by_one`` makes it of single ones."""
        if self._is_possible is False:
            return one_by_one()
        is_first = self._is_possible is None
        before = _state_of(self._dataset) if is_first else None
        try:
            batch = self._made(indices, is_checked=not is_first)
        except NotAtOnce:
            self._is_possible = False
            return one_by_one()
        if not is_first:
            return batch
        if _state_of(self._dataset) != before:  # one that counts or keeps what it is asked for has to see every index
            self._is_possible = False
            return one_by_one()
        expected = one_by_one()
        if isinstance(expected, Instance):
            self._is_possible = _are_same(batch, expected)
        return expected

    def _made(self, indices: Sequence[int], is_checked: bool) -> Instance:
        sample = Instance()

        def fields(index: BatchIndex) -> list[torch.Tensor]:
            made = self._dataset[index]
            if type(made) is not Instance:
                raise NotAtOnce(f"{type(made).__name__} is no Instance")
            sample.get_fields().update(made.get_fields())
            return [_tensor_of(value) for value in made.get_fields().values()]

        tensors = at_once(fields, indices, is_checked)
        return Instance(
            **{name: _with(value, tensor) for (name, value), tensor in zip(sample.get_fields().items(), tensors)}
        )


def _state_of(dataset: Any) -> dict[str, tuple[int, int]]:
    """What would differ if the attributes of a data set were set anew, or something was put into them."""
    return {
        name: (id(value), len(value) if isinstance(value, (list, dict, set)) else 0)
        for name, value in getattr(dataset, "__dict__", {}).items()
    }


def _tensor_of(value: Any) -> torch.Tensor:
    tensor = value.tensor if type(value) is DistTensorData else value
    if not isinstance(tensor, torch.Tensor):
        raise NotAtOnce(f"{type(tensor).__name__} is no tensor")
    return tensor


def _with(value: Any, tensor: torch.Tensor) -> Any:
    """A field of a batch. Of several samples its memory is new, that of a single one may be the data set's."""
    if type(value) is not DistTensorData:
        return tensor
    return (DistTensorData if len(tensor) == 1 else DistTensorData.of_batch)(
        tensor, value.sbp_list, value.placement_idx
    )


def _are_same(one: Instance, other: Instance) -> bool:
    return list(one.get_fields()) == list(other.get_fields()) and all(
        map(_are_same_values, one.get_fields().values(), other.get_fields().values())
    )


def _are_same_values(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if type(one) is DistTensorData:
        return (one.sbp_list, one.placement_idx) == (other.sbp_list, other.placement_idx) and _are_same_values(
            one.tensor, other.tensor
        )
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.numpy().tobytes() == other.numpy().tobytes()
    )
