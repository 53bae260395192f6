"""Networks of the zoo train on two ranks as in one process."""

from __future__ import annotations

import pytest
import zoo_laws
from test_global_tensors import kept

LAWS = [law for law in vars(zoo_laws) if law.startswith("law_")]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_data_parallel_steps_are_those_of_one_process(law: str) -> None:
    wrong = [said for said in (rank[law] for rank in kept(2, "zoo_laws")) if said is not None]
    assert not wrong, wrong[0]
