"""Aten calls on operands with other strides: what differs from the same calls on contiguous copies.

Each operand of a call gets each arrangement by itself, all get the same one, and each gets another one.
"""

from __future__ import annotations

import faulthandler
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from traced import Executed

from oneflow.engine.sharding.call import tensors_in, with_tensors
from oneflow.engine.sharding.writes import written

MIXED_CASES = 12
Arrange = Callable[[Tensor], Tensor]
Case = tuple[str, ...]
"""The name of an arrangement for each operand."""


def _contiguous(value: Tensor) -> Tensor:
    return value.clone(memory_format=torch.contiguous_format)


def _permuted(order: Callable[[int], list[int]]) -> Arrange:
    """Dims in another order in memory, as a transposed value has them."""

    def arrange(value: Tensor) -> Tensor:
        dims = order(value.dim())
        back = sorted(range(len(dims)), key=dims.__getitem__)
        return _contiguous(value.permute(dims)).permute(back)

    return arrange


def _sliced(dim: int) -> Arrange:
    """A slice of a larger tensor that does not start at its first element."""

    def arrange(value: Tensor) -> Tensor:
        sizes = [size + 3 if d == dim % value.dim() else size for d, size in enumerate(value.shape)]
        return _others(sizes, value).narrow(dim, 1, value.shape[dim]).copy_(value)

    return arrange


def _stepped(value: Tensor) -> Tensor:
    """Every second element of each row of a larger tensor."""
    return _others([*value.shape[:-1], 2 * value.shape[-1]], value)[..., 1::2].copy_(value)


def _others(shape: Sequence[int], like: Tensor) -> Tensor:
    """Memory around the values of a call: ones, which are valid indices too."""
    return torch.ones(shape, dtype=like.dtype)


def _with_unit_strides(arrange: Arrange, stride: int) -> Arrange:
    """Dims of size 1 with a stride that new tensors do not have, as views leave it. It addresses nothing."""

    def changed(value: Tensor) -> Tensor:
        usual = arrange(value)
        strides = [stride if size == 1 else usual.stride(dim) for dim, size in enumerate(value.shape)]
        return usual.as_strided(value.shape, strides)

    return changed


def _expanded(dim: int) -> Arrange:
    """The first elements of a dim, repeated."""
    return lambda value: _contiguous(value.narrow(dim, 0, 1)).expand(value.shape)


_CHANNELS_LAST = _permuted(lambda rank: [0, *range(2, rank), 1] if rank > 2 else list(range(rank)))
_REVERSED = _permuted(lambda rank: list(range(rank))[::-1])
ARRANGEMENTS: dict[str, Arrange] = {
    "contiguous": _contiguous,
    "channels last": _CHANNELS_LAST,
    "reversed": _REVERSED,
    "last two swapped": _permuted(lambda rank: [*range(rank - 2), rank - 1, rank - 2] if rank > 1 else [0]),
    "first two swapped": _permuted(lambda rank: [1, 0, *range(2, rank)] if rank > 1 else [0]),
    "slice of dim 0": _sliced(0),
    "slice of dim 1": _sliced(1),
    "slice of dim -1": _sliced(-1),
    "every second element": _stepped,
    "unit strides": _with_unit_strides(_contiguous, 7),
    "channels last, unit strides": _with_unit_strides(_CHANNELS_LAST, 1),
    "reversed, unit strides": _with_unit_strides(_REVERSED, 1),
    "expanded along dim 0": _expanded(0),
    "expanded along dim -1": _expanded(-1),
}


def arranged(value: Tensor, name: str) -> Tensor:
    """A copy of a tensor in the named arrangement, where it has the dims for it."""
    has_dims = value.numel() > 0 and value.dim() > (1 if name == "slice of dim 1" else 0)
    return ARRANGEMENTS[name if has_dims else "contiguous"](value)


def cases(one: Executed) -> Iterator[Case]:
    """The cases of a call that differ in strides; what it writes to is never expanded."""
    count, names = len(one.values), list(ARRANGEMENTS)
    changed, draw = written(one.call(1)), random.Random(count)
    found = [tuple(name if i == place else names[0] for i in range(count)) for name in names for place in range(count)]
    found += [(name,) * count for name in names]
    found += [tuple(draw.choices(names, k=count)) for _ in range(MIXED_CASES if count > 1 else 0)]
    seen = set()
    for case in found:
        operands = [arranged(value, name) for value, name in zip(one.values, case)]
        strides = tuple((operand.stride(), operand.storage_offset()) for operand in operands)
        if strides not in seen and not any(case[place].startswith("expanded") for place in changed):
            seen.add(strides)
            yield case


def failure(one: Executed, case: Case, function: Any = None) -> str | None:
    """What is wrong with a call in a case; None if it gives what it gives on contiguous copies of the operands.
    ``function`` is called instead of the op."""
    operands = [arranged(value, name) for value, name in zip(one.values, case)]
    try:
        expected = _run(one, list(map(_contiguous, operands)), one.op)
    except (RuntimeError, IndexError):
        return None  # the values of expanded operands are no valid arguments
    try:
        found = _run(one, operands, function or one.op)
    except (RuntimeError, IndexError) as error:
        return f"raises {type(error).__name__}: {str(error).splitlines()[0]}"
    wrong = [place for place, pair in enumerate(zip(found, expected)) if not is_near(*pair)]
    return f"other numbers in output {wrong}" if wrong else None


def _run(one: Executed, operands: Sequence[Tensor], function: Any) -> list[Tensor]:
    """The outputs of a call, and its operands after it."""
    args, kwargs = given(one, operands)
    made = function(*args, **kwargs)
    return [leaf for leaf in (*tree_leaves(made), *operands) if isinstance(leaf, Tensor)]


def given(one: Executed, operands: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with other tensors instead of its own."""
    feeds = iter(operands)
    return with_tensors((one.args, one.kwargs), lambda _: next(feeds))


def is_near(found: Tensor, expected: Tensor) -> bool:
    """Whether two tensors are equal up to rounding."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if not expected.dtype.is_floating_point:
        return torch.equal(found, expected)
    near = 1e-8 if expected.dtype == torch.float64 else 1e-3
    finite = expected[torch.isfinite(expected)].double().abs()
    scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return torch.allclose(found, expected, near, near * scale / 10, equal_nan=True)


def in_both_dtypes(one: Executed) -> list[Executed]:
    """A call, and where it has operands of float32 and knows float64 the same call in float64."""
    if not any(value.dtype == torch.float32 for value in one.values):
        return [one]
    wide = [value.double() if value.dtype == torch.float32 else value for value in one.values]
    args, kwargs = _wide(given(one, wide))
    try:
        return [one, replace(one, args=args, kwargs=kwargs, result=one.op(*args, **kwargs))]
    except RuntimeError:
        return [one]


def _wide(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_wide, value))
    if isinstance(value, dict):
        return {name: _wide(item) for name, item in value.items()}
    return torch.float64 if value is torch.float32 else value


def operand_names(one: Executed) -> list[str]:
    """The name in the schema of each operand of a call."""
    named = [*zip((a.name for a in one.op._schema.arguments), one.args), *one.kwargs.items()]
    return [name for name, value in named for _ in tensors_in(value)]


def found_in_a_child(check: Callable[[], str]) -> str:
    """What a check finds in a fork of this process, which it may crash: then that."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        text = "the check failed"
        try:
            text = check()
        finally:
            os.write(writer, text.encode()[:60_000])
            os._exit(0)
    os.close(writer)
    status = os.waitpid(child, 0)[1]
    with os.fdopen(reader) as stream:
        return f"signal {status} ended the process" if status else stream.read()
