"""Graphs of global tensors on real ranks compute and train as one process does, and are refused alike on every rank.

The laws stand in ``graph_laws``, ``graph_settings``, ``graph_stages``, ``graph_auto``, ``graph_readers``,
``graph_recurrent``, ``graph_forced``, ``graph_oracles``, ``graph_refusals`` and ``graph_strides``; one world of two ranks
and one of four run them. Those of training and of its settings are run by four, those of auto parallel by two; all that
can be on both with ``MATRIX_ALL=1``.
"""

from __future__ import annotations

import os

import graph_auto
import graph_forced
import graph_laws
import graph_oracles
import graph_readers
import graph_recurrent
import graph_refusals
import graph_settings
import graph_stages
import graph_strides
import pytest
from test_global_tensors import kept

MODULES = {
    "graph_laws": graph_laws,
    "graph_settings": graph_settings,
    "graph_stages": graph_stages,
    "graph_auto": graph_auto,
    "graph_readers": graph_readers,
    "graph_recurrent": graph_recurrent,
    "graph_forced": graph_forced,
    "graph_oracles": graph_oracles,
    "graph_refusals": graph_refusals,
    "graph_strides": graph_strides,
}
ONLY_ON = {"graph_refusals": 2, "graph_oracles": 2}
if not os.environ.get("MATRIX_ALL"):
    ONLY_ON |= {"graph_laws": 4, "graph_settings": 4, "graph_auto": 2}
ON = {size: [name for name in MODULES if ONLY_ON.get(name, size) == size] for size in (2, 4)}
LAWS = [
    (law, size) for size, names in ON.items() for name in names for law in vars(MODULES[name]) if law.startswith("law_")
]


@pytest.mark.slow
@pytest.mark.timeout(900)  # the first of each size runs all of them
@pytest.mark.parametrize(("law", "size"), LAWS)
def test_a_law_of_graphs_holds_on_every_rank(law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, *ON[size])) if said is not None]
    assert not wrong, wrong[0]
