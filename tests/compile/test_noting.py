"""Notes of lowering are restored when the code inside fails."""

from __future__ import annotations

import pytest

from oneflow.engine.lowering.lower import Lowering
from oneflow.engine.program.notes import LocalNote


def test_an_error_restores_the_note() -> None:
    lowering = Lowering.__new__(Lowering)
    lowering._note = before = LocalNote()
    with pytest.raises(ValueError, match="inside"), lowering.noting(section="reduce"):
        assert lowering._note.section == "reduce"
        raise ValueError("inside")
    assert lowering._note is before
