"""Weights and generation on two real ranks: the laws stand in ``libai_weights_laws``."""

from __future__ import annotations

import pytest
from test_global_tensors import kept

pytest.importorskip("transformers")
import libai_weights_laws

LAWS = [law for law in vars(libai_weights_laws) if law.startswith("law_")]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_law_of_weights_holds_on_every_rank(law: str) -> None:
    wrong = [said for said in (rank[law] for rank in kept(2, "libai_weights_laws")) if said is not None]
    assert not wrong, wrong[0]
