"""SBP: how a logical tensor lies over a placement. Split(dim), Broadcast, Partial sum; Auto leaves it to the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from oneflow.core.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Sbp:
    """One layout. Instances are singletons, so ``is`` compares them."""

    kind: str
    dim: int | None = None

    def __repr__(self) -> str:
        return f"S({self.dim})" if self.kind == "S" else self.kind


BROADCAST = Sbp("B")
PARTIAL = Sbp("P")
AUTO = Sbp("auto")


@lru_cache(maxsize=None)
def split(dim: int) -> Sbp:
    """The layout in which each rank holds a slice of dimension ``dim``."""
    if type(dim) is not int or not 0 <= dim <= 10:
        raise ArgumentError(f"split takes a dimension from 0 to 10, got {dim!r}")
    return Sbp("S", dim)
