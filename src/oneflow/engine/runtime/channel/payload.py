"""Trees of plain Python values and arrays, taken apart for a channel: the tree is pickled, the arrays' bytes never are.

An array (``torch.Tensor`` or ``numpy.ndarray``) in the tree becomes a number; its description stands in a table and its
bytes travel apart. Tensors arrive on the CPU, without gradient, as plain tensors; strides of a dense array
(channels-last, transposed) arrive as they were.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from oneflow.engine.core.errors import ArgumentError

_OF_NUMPY = frozenset([torch.float32, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8])
_PLAIN = frozenset([int, float, bool, str, type(None)])
_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


class Description(NamedTuple):
    """An array without its bytes. A tensor's strides count elements and its dtype is a name; those of numpy count
    bytes."""

    is_tensor: bool
    dtype: str | np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


class Leaf:
    """An array on its way out."""

    def __init__(self, value: torch.Tensor | np.ndarray) -> None:
        self._source: torch.Tensor | np.ndarray
        self._source, self.description = _tensor(value) if isinstance(value, torch.Tensor) else _ndarray(value)

    def write(self, target: memoryview) -> None:
        """Copies the bytes, once, whatever their order in memory."""
        source = self._source
        if isinstance(source, np.ndarray):
            np.copyto(np.ndarray(source.shape, source.dtype, buffer=target), source)
        elif source.is_contiguous():
            target[:] = (
                self.bytes()
            )  # torch would use all its threads, which wait for each other longer than the copy takes
        else:
            torch.frombuffer(target, dtype=source.dtype).view(source.shape).copy_(source)

    def bytes(self) -> memoryview:
        """The bytes in place; a copy only where they do not lie side by side."""
        source = self._source
        if isinstance(source, torch.Tensor):
            source = source.contiguous().view(-1).view(torch.uint8).numpy()
        return np.ascontiguousarray(source).reshape(-1).view(np.uint8).data


def take_apart(tree: Any) -> tuple[bytes, list[Leaf]]:
    """The pickled tree, and the arrays that it only counts."""
    if _is_plain(tree):  # as the words of most steps are
        return pickle.dumps(tree, pickle.HIGHEST_PROTOCOL), []
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(tree)
    return file.getvalue(), pickler.leaves


def put_together(tree: bytes | memoryview, arrays: Sequence[Any]) -> Any:
    return _Unpickler(io.BytesIO(tree), arrays).load()


def array_over(description: Description, memory: np.ndarray, place: int) -> torch.Tensor | np.ndarray:
    """An array over its bytes, which begin at ``place`` and are not copied."""
    is_tensor, dtype, shape, strides, nbytes = description
    if not is_tensor:
        return np.ndarray(shape, dtype, buffer=memory, offset=place, strides=strides)
    known = _DTYPES[str(dtype)]
    if not nbytes:
        return torch.empty(shape, dtype=known)
    flat = torch.frombuffer(memory, dtype=known, count=nbytes // known.itemsize, offset=place)
    return flat if len(shape) == 1 else flat.as_strided(shape, strides)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.leaves: list[Leaf] = []
        self._places: dict[int, int] = {}

    def reducer_override(self, value: Any) -> Any:
        """An array as its number. Unlike a persistent id this is not asked of numbers, texts and containers, which are
        most of a tree."""
        if not _is_array(value):
            return NotImplemented
        # One array in two places arrives as one array. The caller keeps the tree alive, so an id means one object.
        place = self._places.setdefault(id(value), len(self.leaves))
        if place == len(self.leaves):
            self.leaves.append(Leaf(value))
        return _array_at, (place,)


def _array_at(place: int) -> Any:
    """Stands in a pickled tree for the array of that number, which the unpickler has."""
    raise AssertionError("only an unpickler that has the arrays can read this")


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Sequence[Any]) -> None:
        super().__init__(file)
        self._arrays = arrays

    def find_class(self, module: str, name: str) -> Any:
        if name == _array_at.__name__ and module == __name__:
            return self._arrays.__getitem__
        return super().find_class(module, name)


def _is_plain(tree: Any) -> bool:
    """Whether there are only tuples of numbers and texts in a tree."""
    if type(tree) is not tuple:
        return type(tree) in _PLAIN
    for value in tree:
        if type(value) not in _PLAIN and not (type(value) is tuple and _is_plain(value)):
            return False
    return True


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (type(value) is np.ndarray and not value.dtype.hasobject)


def _tensor(value: torch.Tensor) -> tuple[torch.Tensor | np.ndarray, Description]:
    if (
        type(value) is torch.Tensor
        and value.dtype in _OF_NUMPY
        and value.is_cpu
        and not value.requires_grad
        and value.is_contiguous()
    ):
        # As most are. Each call of torch counts here: a worker that was just woken has cold caches.
        return value.numpy(), Description(True, str(value.dtype), tuple(value.shape), value.stride(), value.nbytes)
    if value.layout != torch.strided or value.is_quantized or value.is_meta:
        raise ArgumentError(
            f"a tensor of layout {value.layout} on device {value.device} cannot be sent; send a dense one with data"
        )
    value = value.detach().cpu().resolve_conj().resolve_neg()
    strides = value.stride()
    dense = value if value.is_contiguous() else value.permute(_outermost_first(strides))
    if not dense.is_contiguous():
        dense, strides = value, _contiguous(value.shape, 1)
    return dense, Description(True, str(value.dtype), tuple(value.shape), strides, value.nbytes)


def _ndarray(value: np.ndarray) -> tuple[np.ndarray, Description]:
    strides = value.strides
    dense = value if value.flags.c_contiguous else value.transpose(_outermost_first(strides))
    if not dense.flags.c_contiguous:
        dense, strides = value, _contiguous(value.shape, value.itemsize)
    return dense, Description(False, value.dtype, value.shape, strides, value.nbytes)


def _outermost_first(strides: tuple[int, ...]) -> list[int]:
    return sorted(range(len(strides)), key=lambda dim: -abs(strides[dim]))


def _contiguous(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    strides: list[int] = []
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
