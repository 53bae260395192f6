"""The variables of a session: storage by name, drawn from their initializers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from oneflow.core.errors import ArgumentError
from oneflow.ir.graph import VariableDecl


class VariableStore:
    """Every variable of a session. Tensors keep their identity: values are written into them in place.

    A variable's first values depend only on ``seed``, its name and how often all variables were initialised before.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.decls: dict[str, VariableDecl] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._host: set[str] = set()
        self._draws = 0

    def declare(self, decl: VariableDecl, host: bool = False) -> None:
        """Makes a variable known. ``host`` keeps it in main memory whatever the device: counters and scales."""
        self.decls.setdefault(decl.name, decl)
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

    def _draw(self, decl: VariableDecl) -> torch.Tensor:
        key = f"{self.seed}/{self._draws}" if decl.seed is None else f"{decl.seed}"
        digest = hashlib.blake2b(f"{key}/{decl.name}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
        value = decl.initializer.draw(decl.spec, generator)
        if decl.channels_last and value.dim() == 4:
            value = value.to(memory_format=torch.channels_last)
        return value

    def numpy(self, name: str) -> np.ndarray:
        """A copy of a variable's values, in C order."""
        return self.tensors[name].detach().cpu().contiguous().clone().numpy()

    def write(self, values: Mapping[str, np.ndarray]) -> None:
        """Sets variables; every shape and dtype is checked before the first is written."""
        for name, value in values.items():
            self.check(name, tuple(value.shape), value.dtype)
        for name, value in values.items():
            self.tensors[name].copy_(torch.from_numpy(np.array(value, order="C")))

    def check(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        spec = self.decls[name].spec
        if shape != spec.shape or dtype != spec.dtype.numpy:
            found = f"{np.dtype(dtype).name}({', '.join(map(str, shape))})"
            raise ArgumentError(f"variable {name!r} is {spec}, it cannot be set from {found}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.decls)
