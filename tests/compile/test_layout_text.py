"""The text by which ``oneflow::layout`` carries one SBP per axis."""

from __future__ import annotations

import pytest

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.sbp import AUTO, BROADCAST, PARTIAL, Sbp, format_layout, parse_layout, split


@pytest.mark.parametrize("layout", [None, (BROADCAST,), (split(0), PARTIAL), (AUTO, split(3)), (split(10),)])
def test_a_layout_is_decoded_to_the_same_singletons(layout: tuple[Sbp, ...] | None) -> None:
    decoded = parse_layout(format_layout(layout))
    assert decoded == layout if layout is None else all(a is b for a, b in zip(decoded or (), layout, strict=True))


def test_the_text() -> None:
    assert format_layout([split(0), BROADCAST]) == "S(0),B"
    with pytest.raises(ArgumentError, match="'S0'"):
        parse_layout("S0")
