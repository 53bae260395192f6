"""The variables of a session: storage by name, drawn from their initializers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import torch

from oneflow.core.errors import ArgumentError, NameError_, OneFlowError
from oneflow.ir.graph import VariableDecl


def draw(decl: VariableDecl, seed: int, draws: int) -> torch.Tensor:
    """The first values of a variable: a function of its name, the session's seed and how often variables were drawn before."""
    key = f"{seed}/{draws}" if decl.seed is None else f"{decl.seed}"
    digest = hashlib.blake2b(f"{key}/{decl.name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    try:
        return decl.initializer.draw(decl.spec, generator)
    except OneFlowError as error:
        raise type(error)(f"{decl.line}: variable {decl.name!r} {decl.spec}: {error.reason}") from None


class VariableStore:
    """Every variable of a session. Tensors keep their identity: values are written into them in place.

    A variable's first values depend only on ``seed``, its name and how often all variables were initialised before. Whoever has written
    into variables raises ``version``, so that what was made of their values before is known to be old.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.version = 0
        self.decls: dict[str, VariableDecl] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._host: set[str] = set()
        self._state: set[str] = set()
        self._draws = 0

    def _take_over(self, other: VariableStore) -> None:
        """Goes on with the declarations of another store that has given none of them storage yet."""
        self.decls, self.tensors = other.decls, other.tensors
        self._host, self._state, self._draws = other._host, other._state, other._draws

    def check_declarations(self, variables: Mapping[str, VariableDecl], state: Iterable[VariableDecl]) -> None:
        """Refuses new declarations that do not fit those there are: another spec, or a name that is both variable and state."""
        states = {decl.name: decl for decl in state}
        for name in {**variables, **states}:
            declared = variables.get(name) or (self.decls.get(name) if name not in self._state else None)
            if declared is not None and (name in states or name in self._state):
                raise NameError_(
                    f"{declared.line}: {name!r} is the name of an optimizer's state, a variable cannot have it; choose another"
                )
        for decl in (*variables.values(), *states.values()):
            decl.require_same_spec(self.decls.get(decl.name))

    def declare(self, decl: VariableDecl, state: bool = False, host: bool = False) -> None:
        """Makes a checked variable known. ``state`` is kept by training; ``host`` stays in main memory whatever the device."""
        self.decls.setdefault(decl.name, decl)
        if state:
            self._state.add(decl.name)
        if host:
            self._host.add(decl.name)

    def materialise(self, device: torch.device) -> None:
        """Gives storage and first values to declared variables that have none."""
        for name, decl in self.decls.items():
            if name not in self.tensors:
                value = self._draw(decl)
                self.tensors[name] = value if name in self._host else value.to(device)

    def initialise(self) -> None:
        """Draws every variable anew."""
        self._draws += 1
        for name, tensor in self.tensors.items():
            tensor.copy_(self._draw(self.decls[name]))
        self.version += 1

    def _draw(self, decl: VariableDecl) -> torch.Tensor:
        value = draw(decl, self.seed, self._draws)
        return value.to(memory_format=torch.channels_last) if decl.channels_last and value.dim() == 4 else value

    def numpy(self, name: str) -> np.ndarray:
        """A copy of a variable's values, in C order."""
        return self.tensors[name].detach().cpu().contiguous().clone().numpy()

    def write(self, values: Mapping[str, np.ndarray]) -> None:
        """Sets variables; every shape and dtype is checked before the first is written."""
        for name, value in values.items():
            self.check(name, tuple(value.shape), value.dtype)
        for name, value in values.items():
            self.tensors[name].copy_(torch.from_numpy(np.array(value, order="C")))
        self.version += 1

    def check(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        spec = self.decls[name].spec
        if shape != spec.shape or dtype != spec.dtype.numpy:
            found = f"{np.dtype(dtype).name}({', '.join(map(str, shape))})"
            raise ArgumentError(f"variable {name!r} is {spec}, it cannot be set from {found}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.decls)
