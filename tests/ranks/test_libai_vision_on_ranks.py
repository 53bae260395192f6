"""LiBai's models of pictures on real ranks; the laws stand in ``libai_vision_laws``."""

from __future__ import annotations

import pytest
from libai_vision_laws import LAWS
from test_global_tensors import kept


@pytest.mark.slow
@pytest.mark.parametrize("size, law", [(size, law) for size, laws in LAWS.items() for law in laws])
def test_training_is_that_of_one_process(size: int, law: str) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, "libai_vision_laws")) if said is not None]
    assert not wrong, wrong[0]
