"""Clusters of the update: an update with what is done to gradients before, or the norms by which they are clipped, as
one call of a program on lists of variables.

The C extension runs the sweeps of a cluster where it has them; otherwise torch's ops compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from oneflow.engine.ops.updates import native_update, update
from oneflow.engine.ops.updates.update_recipes import Columns, Direction, Recipe, Runs
from oneflow.engine.ops.updates.update_sweeps import SQUARES, Sweep

Tensors = list[Tensor]


@dataclass(frozen=True)
class UpdateCluster:
    """An update: ``compute`` does it to lists of variables, ``recipe`` by sweeps."""

    compute: Callable[..., None]
    recipe: Recipe

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        return self.recipe.sweeps

    def ops(self) -> list[str]:
        """The names of the ops that are done to a variable, in order."""
        return [name for sweep in self.sweeps for name in _ops(sweep)]

    def __call__(self, columns: Columns, towards: Direction, lr: float, numbers: dict[str, Any]) -> None:
        """Changes variables and states in place: by the C extension, or by torch's ops."""
        if native_update.takes(self.sweeps, columns):
            self.by(native_update.run, columns, towards, lr, numbers)
        else:
            self.by_ops(columns, towards, lr, numbers)

    def by(self, run: Runs, columns: Columns, towards: Direction, lr: float, numbers: dict[str, Any]) -> None:
        """The same by what runs sweeps. Of writes that torch does not see it is told: who keeps what depends on a
        variable looks there."""
        self.recipe(run, columns, towards, lr, **numbers)
        torch._C._increment_version([tensor for column in (columns[0], *columns[2:]) for tensor in column])

    def by_ops(self, columns: Columns, towards: Direction, lr: float, numbers: dict[str, Any]) -> None:
        """The same by torch's ops."""
        params, grads, *states = columns
        self.compute(params, _directed(params, grads, [towards] * len(grads)), *states, lr, **numbers)


@dataclass(frozen=True)
class NormCluster:
    """The norm of each of some gradients, with what is done to them before they are clipped."""

    norm_type: float

    @property
    def sweeps(self) -> tuple[Sweep, ...]:
        return (SQUARES,)

    def ops(self) -> list[str]:
        """As those of an update."""
        return _ops(SQUARES)

    def __call__(self, columns: Columns, towards: Sequence[Direction]) -> Tensors:
        """The norms of gradients, by the C extension or by torch's ops."""
        if self.norm_type == 2.0 and native_update.takes(self.sweeps, columns):
            return self.by(native_update.run, columns, towards)
        return self.by_ops(columns, towards)

    def by(self, run: Runs, columns: Columns, towards: Sequence[Direction]) -> Tensors:
        """The same by what runs sweeps; gradients that only change their length are read alone, as variables of their
        own."""
        params, grads = columns
        if any(one.weight or one.sign for one in towards):
            squares = [sums[1] for sums in run(SQUARES, [params, grads], [one.and_decay(0.0) for one in towards])]
        else:
            squares = [
                one.gradient**2 * sums[0] for one, sums in zip(towards, run(SQUARES, [grads, grads], [[1.0, 0.0, 0.0]]))
            ]
        return [torch.tensor(math.sqrt(square), dtype=torch.float64) for square in squares]

    def by_ops(self, columns: Columns, towards: Sequence[Direction]) -> Tensors:
        """The same by torch's ops. Short floats are summed as float32."""
        params, grads = columns
        grads = [grad.float() if grad.itemsize < 4 else grad for grad in _directed(params, grads, towards)]
        return [norm.double() for norm in torch._foreach_norm(grads, self.norm_type)] if grads else []


def call_update(
    params: Tensors,
    grads: Tensors,
    *states_and_lr: Any,
    cluster: Any,
    unscale: float | None = None,
    factor: Tensor | None = None,
    coupled_l1: float = 0.0,
    coupled_l2: float = 0.0,
    **numbers: Any,
) -> None:
    """What a program calls: the update of variables whose gradients are multiplied with ``unscale``, regularized by L1
    and L2, and clipped by a ``factor``; ``numbers`` are those of the update itself. The executor may put something in
    the place of ``cluster`` that runs it."""
    *states, lr = states_and_lr
    cluster(
        [params, update.laid_out_as(params, grads), *states],
        _towards(unscale, coupled_l1, coupled_l2, 1.0 if factor is None else float(factor)),
        lr,
        numbers,
    )


def call_norms(
    params: Tensors, grads: Tensors, *, cluster: Any, unscale: float | None, l1: list[float], l2: list[float]
) -> Tensors:
    """The norms of gradients that are multiplied and regularized likewise, each with its own L1 and L2."""
    return cluster([params, update.laid_out_as(params, grads)], [_towards(unscale, a, b, 1.0) for a, b in zip(l1, l2)])


def _towards(unscale: float | None, l1: float, l2: float, factor: float) -> Direction:
    return Direction((1.0 if unscale is None else unscale) * factor, l2 * factor, l1 * factor)


def _directed(params: Tensors, grads: Tensors, towards: Sequence[Direction]) -> Tensors:
    """Gradients with what their directions add to them."""
    factors = {one.gradient for one in towards}
    if factors - {1.0}:
        (factor,) = factors  # one of all gradients of an optimizer
        grads = update.scaled(grads, factor)
    return update.regularized(params, grads, [one.sign for one in towards], [one.weight for one in towards])


# ------------------------------------------------------------------ the ops of a sweep


class _Noting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@cache
def _noted(sweep: Sweep) -> tuple[str, ...]:
    tensors = [torch.ones(1, device="meta") for _ in range(sweep.tensors)]
    with _Noting() as noting:
        sweep.function(*tensors, [0.5] * sweep.numbers)
    return tuple(noting.names)


def _ops(sweep: Sweep) -> list[str]:
    """The names of its ops, found by doing them to nothing."""
    return list(_noted(sweep))
