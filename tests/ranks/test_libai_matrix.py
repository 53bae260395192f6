"""Every model of libai in every kind of parallelism, on real ranks: what one process trains. The cells stand in
``libai_matrix``; a launch of each size runs its own."""

from __future__ import annotations

import json
from functools import lru_cache
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from libai_matrix import COLUMNS, laws
from test_global_tensors import PROGRAM, said, started


@lru_cache(maxsize=None)
def references() -> TemporaryDirectory[str]:
    """What one process has left for the ranks."""
    folder = TemporaryDirectory()
    assert not any(run(1, folder.name)[0].values())
    return folder


def run(size: int, folder: str) -> list[dict[str, Any]]:
    return [
        json.loads(out.splitlines()[-1])
        for out in said(started(size, str(PROGRAM), "libai_matrix", LIBAI_MATRIX=folder), timeout=3600)
    ]


@lru_cache(maxsize=None)
def kept(size: int) -> list[dict[str, Any]]:
    return run(size, references().name)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Any:
    yield
    if references.cache_info().currsize:
        references().cleanup()


@pytest.mark.slow
@pytest.mark.timeout(3600)  # the first of each size runs all of them
@pytest.mark.parametrize(("law", "size"), [(law, size) for size in COLUMNS for law in laws(size)])
def test_a_model_of_libai_trains_on_ranks_as_in_one_process(law: str, size: int) -> None:
    wrong = [told for told in (rank[law] for rank in kept(size)) if told is not None]
    assert not wrong, wrong[0]
