"""Aten calls on operands with other strides: which give other results than the same calls on contiguous copies.

Every operand of a call gets every arrangement by itself, all of them get the same one, and each gets another one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from traced import Executed

from oneflow.sharding.call import tensors_in, with_tensors
from oneflow.sharding.writes import written

aten = torch.ops.aten
MIXED_CASES = 12
UNSPECIFIED = {
    aten.empty.memory_format: "memory that nothing has written",
    aten.empty_like.default: "memory that nothing has written",
    aten.new_empty.default: "memory that nothing has written",
    aten.contiguous.default: "a view where it can be",
}


def _permuted(order: Callable[[int], list[int]]) -> Callable[[Tensor], Tensor]:
    def arrange(value: Tensor) -> Tensor:
        dims = order(value.dim())
        back = sorted(range(len(dims)), key=dims.__getitem__)
        return value.permute(dims).clone(memory_format=torch.contiguous_format).permute(back)

    return arrange


def _sliced(dim: int) -> Callable[[Tensor], Tensor]:
    """A slice of a larger tensor, behind its first element."""

    def arrange(value: Tensor) -> Tensor:
        sizes = [size + 3 if d == dim % value.dim() else size for d, size in enumerate(value.shape)]
        return _junk(sizes, value).narrow(dim, 1, value.shape[dim]).copy_(value)

    return arrange


def _stepped(value: Tensor) -> Tensor:
    """Every second element of each row of a larger tensor."""
    return _junk([*value.shape[:-1], 2 * value.shape[-1]], value)[..., 1::2].copy_(value)


def _with_unit_strides(arrange: Callable[[Tensor], Tensor], stride: int) -> Callable[[Tensor], Tensor]:
    """Gives dims of size 1 a stride that no kernel expects. It addresses nothing; views leave such strides behind."""

    def changed(value: Tensor) -> Tensor:
        usual = arrange(value)
        strides = [stride if size == 1 else usual.stride(dim) for dim, size in enumerate(value.shape)]
        return usual.as_strided(value.shape, strides)

    return changed


def _expanded(dim: int) -> Callable[[Tensor], Tensor]:
    def arrange(value: Tensor) -> Tensor:
        return value.narrow(dim, 0, 1).clone(memory_format=torch.contiguous_format).expand(value.shape)

    return arrange


def _junk(shape: Sequence[int], like: Tensor) -> Tensor:
    """Memory whose values are valid indices, and are not those that a call reads."""
    return torch.ones(shape, dtype=like.dtype)


def _contiguous(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.contiguous_format)


_CHANNELS_LAST = _permuted(lambda rank: [0, *range(2, rank), 1] if rank > 2 else list(range(rank)))
_REVERSED = _permuted(lambda rank: list(range(rank))[::-1])
ARRANGEMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": _contiguous,
    "channels last": _CHANNELS_LAST,
    "reversed": _REVERSED,
    "last two swapped": _permuted(lambda rank: [*range(rank - 2), rank - 1, rank - 2] if rank > 1 else [0]),
    "first two swapped": _permuted(lambda rank: [1, 0, *range(2, rank)] if rank > 1 else [0]),
    "a slice of the first dim": _sliced(0),
    "a slice of the second dim": _sliced(1),
    "a slice of the last dim": _sliced(-1),
    "every second element": _stepped,
    "unit strides": _with_unit_strides(_contiguous, 7),
    "channels last, unit strides": _with_unit_strides(_CHANNELS_LAST, 1),
    "reversed, unit strides": _with_unit_strides(_REVERSED, 1),
    "expanded along the first dim": _expanded(0),
    "expanded along the last dim": _expanded(-1),
}


def arranged(value: Tensor, name: str) -> Tensor:
    """A copy of a tensor in the named arrangement; one that is expanded repeats its first elements."""
    if not value.dim() or not value.numel() or (name == "a slice of the second dim" and value.dim() < 2):
        name = "contiguous"
    return ARRANGEMENTS[name](value)


def cases(one: Executed) -> Iterator[tuple[str, ...]]:
    """The arrangements to try for the operands of a call: one for each."""
    count, changed = len(one.values), set(written(one.call(1)))
    found: dict[tuple[str, ...], None] = {}
    for name in list(ARRANGEMENTS)[1:]:
        for place in range(count):
            found[tuple(name if i == place else "contiguous" for i in range(count))] = None
        found[(name,) * count] = None
    chosen = random.Random(count)
    if count > 1:
        for _ in range(MIXED_CASES):
            found[tuple(chosen.choices(list(ARRANGEMENTS), k=count))] = None
    seen = set()
    for case in found:
        if any(case[place].startswith("expanded") for place in changed):
            continue
        strides = tuple(
            (value.stride(), value.storage_offset(), "exp" in name)
            for value, name in ((arranged(v, n), n) for v, n in zip(one.values, case))
        )
        if strides not in seen:
            seen.add(strides)
            yield case


def failure(one: Executed, case: Sequence[str]) -> str | None:
    """What is wrong with a call on operands in these arrangements; None if it gives what it gives on contiguous copies
    of them."""
    operands = [arranged(value, name) for value, name in zip(one.values, case)]
    copies = [operand.clone(memory_format=torch.contiguous_format) for operand in operands]
    try:
        expected = _run(one, copies)
    except (RuntimeError, IndexError):
        return None  # the values of expanded operands are no valid arguments
    try:
        found = _run(one, operands)
    except (RuntimeError, IndexError) as error:
        return f"raises {type(error).__name__}: {str(error).splitlines()[0]}"
    wrong = [i for i, (f, e) in enumerate(zip(found, expected)) if not _is_near(f, e)]
    return f"other numbers in output {wrong}" if wrong else None


def _run(one: Executed, operands: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a call, and its operands after it."""
    feeds = iter(operands)
    args, kwargs = with_tensors((one.args, one.kwargs), lambda _: next(feeds))
    made = one.op(*args, **kwargs)
    return [leaf for leaf in (*tree_leaves(made), *operands) if isinstance(leaf, Tensor)]


def _is_near(found: Tensor, expected: Tensor) -> bool:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if not expected.dtype.is_floating_point:
        return torch.equal(found, expected)
    near = 1e-8 if expected.dtype == torch.float64 else 1e-3
    finite = expected[torch.isfinite(expected)].double().abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return torch.allclose(found, expected, near, near * scale / 10, equal_nan=True)


def in_double(one: Executed) -> Executed:
    """The same call in float64."""
    args, kwargs = with_tensors(
        (one.args, one.kwargs), lambda t: t.double() if t.dtype == torch.float32 else t.clone()
    )
    args, kwargs = (
        _replaced(args, torch.float32, torch.float64),
        _replaced(kwargs, torch.float32, torch.float64),
    )
    return Executed(one.row, one.op, args, kwargs, one.op(*args, **kwargs))


def _replaced(value: Any, old: Any, new: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_replaced(item, old, new) for item in value)
    if isinstance(value, dict):
        return {name: _replaced(item, old, new) for name, item in value.items()}
    return new if value is old else value
