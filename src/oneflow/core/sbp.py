"""SBP: how a logical tensor lies over a placement. Split(dim), Broadcast, Partial sum; Auto leaves it to the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from oneflow.core.number import whole


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


def split(dim: int) -> Sbp:
    """The layout in which each rank holds a slice of dimension ``dim``."""
    return _split(whole("the dimension to split", dim, 0, 10))


@lru_cache(maxsize=None)
def _split(dim: int) -> Sbp:
    return Sbp("S", dim)
