"""Whole programs with splits that the cost model would not choose at their size: every legal signature is to give what
plain torch does. A few seeds of each program are run; ``FORCED_SPLITS=200`` runs so many."""

from __future__ import annotations

import os
from itertools import cycle

import pytest
import torch
from distributed import compiled, layouts
from forced_programs import PROGRAMS
from rank_steps import check

import oneflow as flow
from oneflow.engine.assignment.distribute import FORCED_SPLITS

SEEDS = int(os.environ.get("FORCED_SPLITS", 2))
AXES = (2,), (2, 2), (4,), (3,)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("seed", "axes"), list(zip(range(SEEDS), cycle(AXES))))
def test_a_program_gives_the_same_however_it_is_split(
    name: str, seed: int, axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORCED_SPLITS, str(seed))
    make, inputs = PROGRAMS[name]
    check(make, inputs(torch.Generator().manual_seed(1)), axes, seed)


def product(x=flow.FixedTensorDef((8, 6))):
    w = flow.get_variable("w", (6, 4), initializer=flow.random_normal_initializer())
    return flow.matmul(x, w)


def test_a_seed_decides_and_without_one_the_cost_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(seed: int | None) -> str:
        monkeypatch.delenv(FORCED_SPLITS, raising=False)
        if seed is not None:
            monkeypatch.setenv(FORCED_SPLITS, str(seed))
        (found,) = layouts(compiled(product, 2, train=False), torch.ops.aten.mm.default)
        return found

    assert chosen(None) == "S(0)"
    assert {chosen(seed) for seed in range(24)} == {"B", "P", "S(0)", "S(1)"}
    assert [chosen(seed) for seed in range(4)] == [chosen(seed) for seed in range(4)]
