"""Graphs of global tensors on real ranks compute and train as one process does, and are refused alike on every rank.

The laws stand in ``graph_laws``, ``graph_settings``, ``graph_stages``, ``graph_auto``, ``graph_readers``, ``graph_oracles``, ``graph_refusals`` and
``graph_fusion``; each module is run once by two ranks, and all but the last three once by four.
"""

from __future__ import annotations

import graph_auto
import graph_fusion
import graph_laws
import graph_oracles
import graph_readers
import graph_refusals
import graph_settings
import graph_stages
import pytest
from test_global_tensors import kept

MODULES = {"graph_laws": graph_laws, "graph_settings": graph_settings, "graph_stages": graph_stages, "graph_auto": graph_auto, "graph_readers": graph_readers, "graph_oracles": graph_oracles, "graph_refusals": graph_refusals, "graph_fusion": graph_fusion}
SIZES = {name: (2,) if name in ("graph_refusals", "graph_oracles", "graph_fusion") else (2, 4) for name in MODULES}
LAWS = [(name, law, size) for name, found in MODULES.items() for law in vars(found) if law.startswith("law_") for size in SIZES[name]]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "law", "size"), LAWS, ids=[f"{law}-{size}" for _, law, size in LAWS])
def test_a_law_of_graphs_holds_on_every_rank(module: str, law: str, size: int) -> None:
    wrong = [said for said in (rank[law] for rank in kept(size, module)) if said is not None]
    assert not wrong, wrong[0]
