"""Training runs on real ranks are those of one process: the laws stand in ``libai_laws``, and are run by four ranks,
with ``MATRIX_ALL=1`` by two as well."""

from __future__ import annotations

import os

import libai_laws
import pytest
from test_global_tensors import kept

LAWS = [law for law in vars(libai_laws) if law.startswith("law_")]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4] if os.environ.get("MATRIX_ALL") else [4])
@pytest.mark.parametrize("law", LAWS)
def test_a_law_of_runs_holds_on_every_rank(law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, "libai_laws")) if said is not None]
    assert not wrong, wrong[0]
