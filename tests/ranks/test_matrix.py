"""Every model in every kind of parallelism, on real ranks: what one process trains. The cells stand in
``graph_matrix``; two launches run them all."""

from __future__ import annotations

import pytest
from graph_matrix import LAWS
from test_global_tensors import kept


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first of each size runs all of them
@pytest.mark.parametrize(("law", "size"), [(law, size) for size, laws in LAWS.items() for law in laws])
def test_a_cell_of_the_matrix_is_what_one_process_trains(law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, "graph_matrix", timeout=3600)) if said is not None]
    assert not wrong, wrong[0]
