"""SBP (sharding spec): how a logical tensor lies over a placement. Split(dim), Broadcast (replicated), Partial sum;
Auto leaves it to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.number import whole

_TEXT = re.compile(r"S\((\d+)\)")


@dataclass(frozen=True, eq=False)
class Sbp:
    """One layout. Instances are singletons, so ``is`` compares them."""

    kind: str
    dim: int | None = None

    def __repr__(self) -> str:
        return f"S({self.dim})" if self.kind == "S" else self.kind

    def __reduce__(self) -> tuple[object, ...]:
        return parse_sbp, (str(self),)  # stays a singleton where it is unpickled


BROADCAST = Sbp("B")
PARTIAL = Sbp("P")
AUTO = Sbp("auto")


def split(dim: int) -> Sbp:
    """The layout in which each rank holds a slice of dimension ``dim``."""
    return _split(whole("the dimension to split", dim, 0, 10))


@lru_cache(maxsize=None)
def _split(dim: int) -> Sbp:
    return Sbp("S", dim)


def format_layout(sbps: Iterable[Sbp] | None) -> str:
    """Encodes one SBP per axis of a placement as text, such as "S(0),B", for the schema of ``oneflow::layout``.

    None, which leaves the layout open, is "".
    """
    return "" if sbps is None else ",".join(map(str, sbps))


def parse_layout(text: str) -> tuple[Sbp, ...] | None:
    """Decodes what ``format_layout`` encodes."""
    return tuple(map(parse_sbp, text.split(","))) if text else None


def parse_sbp(text: str, what: str = "a layout") -> Sbp:
    """The layout that ``str`` of one gives: "S(0)", "B", "P" or "auto"."""
    known = {str(sbp): sbp for sbp in (BROADCAST, PARTIAL, AUTO)}
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if match is None and text not in known:
        raise ArgumentError(f"{what} is 'S(0)', 'S(1)' ..., 'B' or 'P', got {text!r}")
    return known[text] if match is None else split(int(match[1]))
