"""``oneflow.typing``: annotations for the inputs and results of job functions."""

from __future__ import annotations

from typing import Generic, TypeVar

from oneflow.typing.definitions import FixedTensorDef, MirroredTensorDef, MirroredTensorListDef

__all__ = ["Bundle", "Callback", "ListListNumpy", "ListNumpy", "Numpy"]

T = TypeVar("T")


class Numpy:
    """One numpy array. As a result annotation: the call blocks and returns the array."""

    Placeholder = FixedTensorDef


class ListNumpy:
    """A list of numpy arrays, one per device."""

    Placeholder = MirroredTensorDef


class ListListNumpy:
    """A list, one entry per device, of lists of numpy arrays."""

    Placeholder = MirroredTensorListDef


class Callback(Generic[T]):
    """As a result annotation: the call returns a function that takes a callback, which is given the ``T`` result."""


class Bundle(Generic[T]):
    """As a result annotation: any nested structure of ``T``, which is ``Numpy`` if it is not said."""
