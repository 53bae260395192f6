"""numpy's arrays and numbers as pickles hold them, made from their bytes without numpy's own unpickling: lengths are
checked first."""

from __future__ import annotations

import math
import re
from pickle import UnpicklingError
from typing import Any

import numpy as np

from oneflow.engine.checkpoint.slots import Slot

_PLAIN_DTYPE = re.compile(r"[<>|=]?[biufcSU][1-9]\d{0,9}", re.ASCII)


class DtypeSlot(Slot):
    """``numpy.dtype`` of a plain kind: bool, whole, float, complex, or text of a fixed length."""

    def __new__(cls, text: Any = None, align: Any = False, copy: Any = True) -> DtypeSlot:
        if not isinstance(text, str) or not _PLAIN_DTYPE.fullmatch(text):
            raise UnpicklingError(f"it holds an array of the dtype {text!r}; only plain numbers and text are read")
        slot = super().__new__(cls)
        slot.dtype = np.dtype(text)
        return slot

    dtype: np.dtype

    def __setstate__(self, state: Any) -> None:
        order, rest = state[1], state[2:5]
        if order not in ("<", ">", "=", "|") or any(part is not None for part in rest):
            raise UnpicklingError("it holds an array of a structured dtype; only plain numbers and text are read")
        if order in "<>":
            self.dtype = self.dtype.newbyteorder(order)

    def value(self, fill: Any, tensor: Any) -> np.dtype:
        return self.dtype


class ArraySlot(Slot):
    """``numpy.ndarray``, once it is told its values."""

    array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        self.array = _array(data, dtype, shape, "F" if is_fortran is True else "C")

    def value(self, fill: Any, tensor: Any) -> np.ndarray:
        if self.array is None:
            raise UnpicklingError("it holds an array without values")
        return self.array


def reconstructed(kind: Any, shape: Any, code: Any) -> ArraySlot:
    """numpy's ``_reconstruct``: an array that is told its values later."""
    if kind is not ArraySlot:
        raise UnpicklingError("it holds an array of a class of its own; only plain arrays are read")
    return ArraySlot()


def from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """numpy's ``_frombuffer``, which protocol 5 calls."""
    return _array(data, dtype, shape, "F" if order == "F" else "C")


def scalar(dtype: Any, data: Any) -> Any:
    """numpy's ``scalar``: a number of its own kind."""
    return _array(data, dtype, (), "C")[()]


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    if isinstance(data, str):
        data = data.encode("latin1")  # arrays that Python 2 pickled
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not (isinstance(dtype, DtypeSlot) and is_shape and isinstance(data, (bytes, bytearray))):
        raise UnpicklingError("it holds an array of objects, or a damaged one")
    needed = math.prod(shape) * dtype.dtype.itemsize
    if len(data) != needed:
        raise UnpicklingError(
            f"it holds an array {shape} of {dtype.dtype}, which needs {needed} bytes and has {len(data)}"
        )
    if not needed:
        return np.empty(shape, dtype.dtype)
    return np.ndarray(shape, dtype.dtype, data, order=order).copy(order="K")
