"""What a graph takes and gives: tensors in nested lists, tuples and dictionaries, and plain constants among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.global_tensor.tensor import GlobalTensor
from oneflow.engine.sharding.mesh import Layout

_CONSTANTS = (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Meta:
    """What a graph goes by of a tensor that it is given."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    layout: Layout | None = None

    def __str__(self) -> str:
        where = self.device if self.layout is None else f"{self.device.type} as {self.layout}"
        return f"{str(self.dtype).removeprefix('torch.')}({', '.join(map(str, self.shape))}) on {where}"


def meta_of(leaf: Any) -> Any:
    """Of a tensor its shape, dtype and device, of a global one its layout too; a constant is what it is, with its type:
    True is not 1."""
    if isinstance(leaf, GlobalTensor):
        return Meta(leaf._spec.shape, leaf._spec.dtype, leaf._spec.device, leaf._spec.layout)
    return Meta(tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else (type(leaf), leaf)


@dataclass(frozen=True)
class Call:
    """The arguments of one call: its leaves in order, and how they are nested (None: positional tensors alone)."""

    leaves: Sequence[Any]
    nesting: Any

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    def signature(self) -> tuple[Any, ...]:
        """What must be the same from call to call."""
        return (self.nesting, *[meta_of(leaf) for leaf in self.leaves])

    def arguments(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments with other tensors in place of the call's own."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        return (tuple(leaves), {}) if self.nesting is None else pytree.tree_unflatten(leaves, self.nesting)


def call_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The call with these arguments. Refuses leaves that are neither tensors nor constants."""
    if all([isinstance(arg, Tensor) for arg in (*args, *kwargs.values())]):
        names = tuple(sorted(kwargs))  # their order does not count
        return Call([*args, *[kwargs[name] for name in names]], _flat(len(args), names)) if names else Call(args, None)
    paths, nesting = pytree.tree_flatten_with_path((args, dict(sorted(kwargs.items()))))
    for path, leaf in paths:
        if not isinstance(leaf, (Tensor, *_CONSTANTS)):
            raise UnsupportedError(
                f"a graph takes tensors, None, numbers and text, in lists, tuples and dictionaries; argument "
                f"{_told(path)} has a leaf of type "
                f"{type(leaf).__name__}; make a tensor of it, or give it to the graph's __init__()"
            )
    return Call([leaf for _, leaf in paths], nesting)


@lru_cache(maxsize=1 << 10)
def _flat(count: int, names: tuple[str, ...]) -> Any:
    """How arguments are nested that are ``count`` leaves by place, and one for each name. Kept: every step of a loop
    asks for the same."""
    return pytree.tree_structure(((0,) * count, dict.fromkeys(names, 0)))


def _told(path: tuple[Any, ...]) -> str:
    return pytree.keystr(path[1:])


@dataclass(frozen=True)
class Returned:
    """How the results of a graph are nested, and what of them is no tensor."""

    leaves: list[Any]
    nesting: Any

    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """The results with these tensors in their places."""
        given = iter(tensors)
        return pytree.tree_unflatten(
            [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves], self.nesting
        )

    def require_plain(self) -> None:
        """Refuses leaves that are neither tensors nor constants: what they hold has no values."""
        for path, leaf in pytree.tree_flatten_with_path(pytree.tree_unflatten(self.leaves, self.nesting))[0]:
            if not isinstance(leaf, (Tensor, *_CONSTANTS)):
                raise UnsupportedError(
                    "a graph gives tensors, None, numbers and text, in lists, tuples and dictionaries; build() gave "
                    f"{'result ' + pytree.keystr(path) if path else 'a result'} of type {type(leaf).__name__}; give "
                    f"back the tensors that it holds, or leave it out"
                )

    @property
    def is_one_tensor(self) -> bool:
        return self.nesting.is_leaf() and isinstance(self.leaves[0], Tensor)


def returned_by(results: Any) -> Returned:
    """What ``build`` gave."""
    return Returned(*pytree.tree_flatten(results))
