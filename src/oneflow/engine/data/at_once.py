"""Samples made all at once by the code that makes one: it is run with an index that stands for those of a whole
batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

# Ops whose numbers do not depend on what lies beside them in memory: copies, views, gathers, and arithmetic that is
# rounded once. Sums, products of matrices and functions such as exp may differ in the last bit when they are computed
# for many samples together.
_EXACT = frozenset(
    """
    _local_scalar_dense _to_copy _unsafe_view abs add alias any arange bitwise_and bitwise_not bitwise_or bitwise_xor cat clamp clone contiguous copy_ detach div div_ eq expand flip full ge gt
    index index_select le lift_fresh lift_fresh_copy logical_and logical_not logical_or lt maximum minimum mul ne neg ones ones_like permute reshape round select slice
    squeeze stack sub sub_ t transpose unsqueeze view where zeros zeros_like
    """.split()
)


class NotAtOnce(Exception):
    """These samples have to be made one by one."""


class _Standing:
    """Something of every sample of a batch that has no value of its own: all that asks for one fails."""

    def _has_no_value(self, *_: Any) -> NoReturn:
        raise NotAtOnce(f"a {type(self).__name__} stands for many numbers")

    __bool__ = __int__ = __float__ = __index__ = __str__ = __repr__ = __format__ = __len__ = __iter__ = __array__ = (
        _has_no_value
    )
    __eq__ = __ne__ = __hash__ = _has_no_value


class BatchIndex(_Standing):
    """The index of every sample of a batch. A tensor may be indexed with it, and a data set of flowvision that has its
    pictures in memory."""

    def __init__(self, indices: Sequence[int], batched: torch.Tensor, places: torch.Tensor) -> None:
        self._indices, self.batched, self._places = indices, batched, places

    def of(self, values: Any) -> torch.Tensor:
        """The entries of a tensor, an array or a list of numbers, as a tensor of one sample."""
        if isinstance(values, list):
            return torch.tensor([values[index] for index in self._indices])[self._places]
        return (values if isinstance(values, torch.Tensor) else torch.from_numpy(values))[self.batched]


class BatchNumber(_Standing):
    """A whole number of every sample, such as its label; ``tensor(number)`` is all that can be done with it."""

    def __init__(self, batched: torch.Tensor) -> None:
        self.batched = batched.long()


def at_once(
    make: Callable[[BatchIndex], Sequence[torch.Tensor]], indices: Sequence[int], is_checked: bool = False
) -> list[torch.Tensor]:
    """The tensors that ``make`` gives for each index, stacked: bit for bit what one call for each gives.

    ``make`` is called once. NotAtOnce: it looks at the value of an index, draws random numbers, or computes what could
    be rounded in another way. The last costs as much again to see, and is left out where the same function
    ``is_checked`` already.
    """
    before = _drawn()
    try:
        with nullcontext() if is_checked else _Exact():
            made = torch.vmap(lambda *batched: _called(make, indices, *batched), randomness="error")(
                torch.tensor(indices), torch.arange(len(indices))
            )
    except Exception as error:
        raise NotAtOnce(f"{type(error).__name__}: {error}") from error
    if _drawn() != before:
        raise NotAtOnce("random numbers were drawn")
    return [tensor.contiguous() for tensor in made]


def _drawn() -> tuple[Any, ...]:
    """Where Python's and numpy's generators are; torch's is not to be drawn from inside vmap."""
    of_numpy: Any = np.random.get_state()
    return random.getstate(), of_numpy[1].tobytes(), of_numpy[2:]


def _called(
    make: Callable[[BatchIndex], Sequence[torch.Tensor]],
    indices: Sequence[int],
    batched: torch.Tensor,
    places: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    with _Indexing():
        return tuple(make(BatchIndex(indices, batched, places)))


class _Indexing(TorchFunctionMode):
    """Lets tensors be indexed with a BatchIndex, and be made of a BatchNumber."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            where = args[1]
            if type(where) is BatchIndex:
                return args[0][where.batched]
            if type(where) is tuple:
                return args[0][tuple(part.batched if type(part) is BatchIndex else part for part in where)]
        if func is torch.tensor and type(args[0]) is BatchNumber:
            return args[0].batched.to(copy=True, **kwargs or {})
        return func(*args, **(kwargs or {}))


class _Exact(TorchDispatchMode):
    """Refuses ops that may round in another way for many samples than for one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in _EXACT or (kwargs and kwargs.get("alpha", 1) != 1):
            raise NotAtOnce(f"{name} may be rounded in another way")
        return func(*args, **(kwargs or {}))
