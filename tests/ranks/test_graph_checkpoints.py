"""Checkpoints of graphs go through any layout, bit by bit: saved by four ranks, loaded by four, two and one. The laws
stand in ``graph_checkpoints``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_global_tensors import PROGRAM, said, started


@pytest.mark.slow
def test_what_four_ranks_save_loads_on_any_number_in_any_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPH_CHECKPOINTS", str(tmp_path))
    for size in (4, 2, 1):
        for rank, out in enumerate(said(started(size, str(PROGRAM), "graph_checkpoints"))):
            wrong = {law: told for law, told in json.loads(out.splitlines()[-1]).items() if told is not None}
            assert not wrong, (size, rank, wrong)
