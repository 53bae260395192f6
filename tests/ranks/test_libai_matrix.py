"""Every model of libai in every kind of parallelism, on real ranks: what one process trains. The cells stand in ``libai_matrix``; two launches run them all."""

from __future__ import annotations

import pytest
from libai_matrix import LAWS
from test_global_tensors import kept


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first of each size runs all of them
@pytest.mark.parametrize(("law", "size"), [(law, size) for size, laws in LAWS.items() for law in laws])
def test_a_model_of_libai_trains_on_ranks_as_in_one_process(law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, "libai_matrix")) if said is not None]
    assert not wrong, wrong[0]
