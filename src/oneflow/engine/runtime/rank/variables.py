"""The variables of a session by name, wherever their values lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch

from oneflow.engine.core.errors import ArgumentError, NameError_
from oneflow.engine.ir.graph import VariableDecl
from oneflow.engine.step.rank_variables import draw

_MOST_STEPS = 1 << 62  # so that a counter can be added to


class Keeper(Protocol):
    """Where the values of a session's variables lie: in this process, or in parts on workers."""

    def declare(self, decls: Sequence[VariableDecl], seed: int, draws: int) -> None:
        """Gives storage and first values to new variables."""

    def initialise(self, seed: int, draws: int) -> None:
        """Draws every variable anew."""

    def numpy(self, decl: VariableDecl) -> np.ndarray:
        """A copy of a variable's values, in C order."""

    def write(self, values: Mapping[str, np.ndarray]) -> None:
        """Sets variables to checked values."""


class VariableStore:
    """Every variable of a session by name: what was declared, and how to get at its values.

    A variable's first values depend only on ``seed``, its name and how often all variables were initialised before.
    Numbers that only the process of the session needs, such as step counters, are in ``host``; all others lie with a
    keeper.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.decls: dict[str, VariableDecl] = {}
        self.host: dict[str, torch.Tensor] = {}
        self._on_host: set[str] = set()
        self._state: set[str] = set()
        self._kept: set[str] = set()
        self._keeper: Keeper | None = None
        self._draws = 0

    @property
    def has_values(self) -> bool:
        """True once a variable was given storage."""
        return bool(self.host or self._kept)

    def keep_in(self, keeper: Keeper) -> None:
        """Says where values lie from now on; there are none yet."""
        assert not self.has_values
        self._keeper = keeper

    @property
    def keeper(self) -> Keeper:
        assert self._keeper is not None, "variables have no values before the session has started"
        return self._keeper

    def check_declarations(self, variables: Mapping[str, VariableDecl], state: Iterable[VariableDecl]) -> None:
        """Refuses new declarations that do not fit those there are: another spec, or a name that is both variable and
        state."""
        states = {decl.name: decl for decl in state}
        for name in {**variables, **states}:
            declared = variables.get(name) or (self.decls.get(name) if name not in self._state else None)
            if declared is not None and (name in states or name in self._state):
                raise NameError_(
                    f"{declared.line}: {name!r} is the name of an optimizer's state, a variable cannot have it; choose "
                    f"another"
                )
        for decl in (*variables.values(), *states.values()):
            decl.require_same_spec(self.decls.get(decl.name))

    def declare(self, decl: VariableDecl, state: bool = False, host: bool = False) -> None:
        """Makes a checked variable known. ``state`` is kept by training; ``host`` stays in main memory whatever the
        device."""
        self.decls.setdefault(decl.name, decl)
        if state:
            self._state.add(decl.name)
        if host:
            self._on_host.add(decl.name)

    def materialise(self) -> None:
        """Gives storage and first values to declared variables that have none."""
        for name in self._on_host - self.host.keys():
            self.host[name] = draw(self.decls[name], self.seed, self._draws)
        new = [decl for name, decl in self.decls.items() if name not in self._on_host and name not in self._kept]
        if new:
            self.keeper.declare(new, self.seed, self._draws)
            self._kept.update(decl.name for decl in new)

    def initialise(self) -> None:
        """Draws every variable anew."""
        self._draws += 1
        for name, tensor in self.host.items():
            tensor.copy_(draw(self.decls[name], self.seed, self._draws))
        self.keeper.initialise(self.seed, self._draws)

    def numpy(self, name: str) -> np.ndarray:
        """A copy of a variable's values, in C order."""
        return self.host[name].clone().numpy() if name in self.host else self.keeper.numpy(self.decls[name])

    def write(self, values: Mapping[str, np.ndarray]) -> None:
        """Sets variables; every shape and dtype is checked before the first is written."""
        for name, value in values.items():
            self.check(name, tuple(value.shape), value.dtype)
            if name in self.host and value.dtype.kind == "i" and not ((value >= 0) & (value < _MOST_STEPS)).all():
                raise ArgumentError(
                    f"variable {name!r} counts steps and cannot be {int(value.flat[0])}; it is 0 or more, and below "
                    f"{_MOST_STEPS}"
                )
        for name in values.keys() & self.host.keys():
            self.host[name].copy_(torch.from_numpy(np.array(values[name], order="C")))
        kept = {name: value for name, value in values.items() if name not in self.host}
        if kept:
            self.keeper.write(kept)

    def check(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        spec = self.decls[name].spec
        if shape != spec.shape or dtype != spec.dtype.numpy:
            found = f"{np.dtype(dtype).name}({', '.join(map(str, shape))})"
            raise ArgumentError(f"variable {name!r} is {spec}, it cannot be set from {found}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.decls)
