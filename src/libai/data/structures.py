"""A sample, or a batch of them: named fields of tensors that know how they are laid out on the ranks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError, DTypeError, nearest

SLOT_BYTES = 8 << 20
"""Batches up to this size are copied from a worker to the program; each tensor of a larger one is a file in shared
memory."""
_DEFAULT_SBP = ("split_0", "broadcast")


@dataclass(eq=False)
class DistTensorData:
    """A tensor with its layout: ``sbp_list`` has one word for the ranks of data parallelism and one for those of tensor
    parallelism ("split_<dim>", "broadcast" or "partial_sum"); ``placement_idx`` is the layer at whose stage it is
    needed, -1 the last.

    ``to_global`` puts the global tensor in the place of the local one. ``sbp`` is its layout, there only afterwards.
    """

    tensor: Any  # a tensor, local or global
    sbp_list: list[str] = field(default_factory=lambda: list(_DEFAULT_SBP))
    placement_idx: int = 0
    _given: Any = field(default=None, init=False, repr=False)

    @staticmethod
    def of_batch(tensor: torch.Tensor, sbp_list: list[str], placement_idx: int) -> DistTensorData:
        """A batch in memory that was made for it alone: ``to_global`` takes that memory over, unless another tensor was
        put in its place."""
        made = DistTensorData(tensor, sbp_list, placement_idx)
        made._given = tensor
        return made

    def to_global(self, sbp: Any = None, placement: Any = None, device_type: str = "cuda") -> None:
        """Every rank of the first stage gives its own batch; the parts become one global tensor, which then goes to the
        stage of ``placement_idx``. With a ``placement`` there is one conversion, to it."""
        if sbp is None:
            layout = dist.get_batch_layout(self.sbp_list, self.placement_idx, device_type)
            self.sbp = list(layout.sbp)
            if placement is None:
                self._lay_out(layout)
                return
        else:
            self.sbp = sbp
        if placement is not None:
            self.tensor = self.tensor.to_global(placement=placement, sbp=self.sbp)
            return
        self.tensor = self.tensor.to_global(placement=dist.get_layer_placement(0, device_type), sbp=self.sbp)
        if self.placement_idx != 0:
            self.tensor = self.tensor.to_global(placement=dist.get_layer_placement(self.placement_idx, device_type))

    def _lay_out(self, layout: dist.BatchLayout) -> None:
        given, self._given = self._given, None
        if given is not None and given is self.tensor and not given.requires_grad:
            from oneflow.engine.global_tensor.members import given_away  # with it come the rules of every op

            self.tensor = given_away(given, layout.read, layout.sbp)
        else:
            self.tensor = self.tensor.to_global(placement=layout.read, sbp=layout.sbp)
        if layout.needed != layout.read:
            self.tensor = self.tensor.to_global(placement=layout.needed)

    @staticmethod
    def stack(distTensor_lists: Sequence[DistTensorData]) -> DistTensorData:
        """The tensors as one batch. All have one shape and one layout; what is stacked alone only gains a dimension, in
        place."""
        first = distTensor_lists[0]
        if not isinstance(first.tensor, torch.Tensor):
            raise DTypeError(
                f"DistTensorData holds a tensor, got {type(first.tensor).__name__}; make it one in the data set's "
                f"__getitem__, such as flow.tensor(value)"
            )
        if len(distTensor_lists) == 1:
            first.tensor = first.tensor.unsqueeze(0)
            return first
        for number, other in enumerate(distTensor_lists):
            _require_alike(first, other, number)
        return DistTensorData.of_batch(
            stacked([each.tensor for each in distTensor_lists]), first.sbp_list, first.placement_idx
        )


class Instance:
    """Named fields: those of one sample, or of a batch. Their names are the argument names of the model's ``forward``.

    Fields are attributes; ``len`` is their number. ``Instance.stack`` makes a batch of samples.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._fields: OrderedDict[str, Any] = OrderedDict(kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            self.set(name, value)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("_fields")  # absent while a copy is being made
        if fields is None or name not in fields:
            raise AttributeError(f"Cannot find field '{name}' in the given Instance!{nearest(name, fields or ())}")
        return fields[name]

    def set(self, name: str, value: Any) -> None:
        """Sets a field."""
        self._fields[name] = value

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self._fields

    def remove(self, name: str) -> None:
        """Removes a field."""
        del self._fields[name]

    def get(self, name: str) -> Any:
        """The value of a field."""
        return self._fields[name]

    def get_fields(self) -> OrderedDict[str, Any]:
        """The fields themselves; what is changed in them is changed in the instance."""
        return self._fields

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> NoReturn:
        raise NotImplementedError("an Instance is not iterable; get_fields() has its fields")

    def __str__(self) -> str:
        return f"Instance(fields=[{', '.join(f'{name}: {value}' for name, value in self._fields.items())}])"

    __repr__ = __str__

    @staticmethod
    def stack(instance_lists: Sequence[Instance]) -> Instance:
        """A batch: the values of each field of the first instance, stacked. Tensors get a first dimension, lists stay
        lists of lists, other values are stacked by their class."""
        if not instance_lists or not all(isinstance(each, Instance) for each in instance_lists):
            kinds = sorted({type(each).__name__ for each in instance_lists if not isinstance(each, Instance)})
            raise ArgumentError(
                f"Instance.stack takes one or more Instances, got {', '.join(kinds) if kinds else 'none'}"
            )
        batch = Instance()
        for name in instance_lists[0].get_fields():
            values = [_field_of(each, name, number) for number, each in enumerate(instance_lists)]
            batch.set(name, _stacked_field(name, values))
        return batch


def stacked(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensors along a new first dimension: in a loader's worker, if they are large, straight into shared memory,
    from where no copy is made."""
    first = tensors[0]
    size = first.element_size() * first.numel() * len(tensors)
    if size <= SLOT_BYTES or torch.utils.data.get_worker_info() is None:
        return torch.stack(list(tensors))
    storage = first.untyped_storage()._new_shared(size, device=first.device)
    out = first.new(storage).resize_(len(tensors), *first.shape)
    return torch.stack(list(tensors), out=out)


def _stacked_field(name: str, values: list[Any]) -> Any:
    if isinstance(values[0], torch.Tensor):
        return stacked(values)
    if isinstance(values[0], list):
        return values
    if hasattr(type(values[0]), "stack"):
        return type(values[0]).stack(values)
    raise ValueError(
        f"Unsupported type {type(values[0])} for stack. Field '{name}' holds it; a field is a tensor, a DistTensorData "
        f"or a list"
    )


def _field_of(instance: Instance, name: str, number: int) -> Any:
    if not instance.has(name):
        raise ArgumentError(
            f"all samples of a batch have the same fields: the first has '{name}', sample {number} has only "
            f"{list(instance.get_fields())}"
        )
    return instance.get(name)


def _require_alike(first: DistTensorData, other: DistTensorData, number: int) -> None:
    if not isinstance(other.tensor, torch.Tensor) or first.tensor.shape != other.tensor.shape:
        found = tuple(other.tensor.shape) if isinstance(other.tensor, torch.Tensor) else type(other.tensor).__name__
        raise ArgumentError(
            f"tensor shape is not equal: the first sample of a batch has {tuple(first.tensor.shape)}, sample {number} "
            f"{found}"
        )
    if list(first.sbp_list) != list(other.sbp_list):
        raise ArgumentError(
            f"sbp_list is not equal: the first sample of a batch has {list(first.sbp_list)}, sample {number} "
            f"{list(other.sbp_list)}"
        )
    if first.placement_idx != other.placement_idx:
        raise ArgumentError(
            f"placement_idx is not equal: the first sample of a batch has {first.placement_idx}, sample {number} "
            f"{other.placement_idx}"
        )
