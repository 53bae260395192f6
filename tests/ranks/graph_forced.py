"""Graphs on ranks train as one process does, however their ops are split: by splits that the cost model would not
choose at their size."""

from __future__ import annotations

import os

from graph_laws import close, copies, same, trained, trained_alone

from oneflow.engine.assignment.distribute import FORCED_SPLITS

SEEDS = range(int(os.environ.get("FORCED_SPLITS", 3)))


def forced(name: str) -> None:
    alone, losses = trained_alone(name)
    for seed in SEEDS:
        os.environ[FORCED_SPLITS] = str(seed)
        try:
            _, model, found = trained(name, copies)
        finally:
            del os.environ[FORCED_SPLITS]
        close(found, losses)
        same(model, alone)


def law_an_mlp_may_be_split_in_any_way() -> None:
    forced("MLP")


def law_a_conv_net_may_be_split_in_any_way() -> None:
    forced("conv net")


def law_a_gpt_may_be_split_in_any_way() -> None:
    forced("GPT")
