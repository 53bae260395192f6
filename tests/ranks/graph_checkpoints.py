"""Laws of checkpoints of graphs: what four ranks save, in any layout, loads bit by bit on two, on one and in other
layouts.

Four ranks write into the folder that ``GRAPH_CHECKPOINTS`` names; two ranks and one read there, and four in other
layouts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from global_rank import RANK, SIZE, B, S, spread
from graph_auto import auto
from graph_laws import ALL, GRID, Train, adam, batches, close, copies, model_of, split_layers
from graph_settings import accumulate, zero
from graph_stages import FIRST, LAST, gpt_stages, lay
from torch import Tensor, nn

import oneflow as flow
from oneflow.engine.global_tensor.tensor import GlobalTensor

FOLDER = Path(os.environ.get("GRAPH_CHECKPOINTS", "."))
STEPS = 2


def scaled(graph: Any) -> None:
    """A loss scale has counters of its own."""
    zero(2)(graph)
    accumulate(2)(graph)
    graph.set_grad_scaler(flow.amp.GradScaler(init_scale=64.0, growth_interval=1))


def with_stages(graph: Any) -> None:
    scaled(graph)
    gpt_stages(graph)


def to_stages(model: nn.Module) -> None:
    lay(model, lambda path: path.startswith(("blocks", "norm", "head")))


LAYOUTS: dict[str, tuple[Callable[[nn.Module], None], Any, Any]] = {
    "zero": (copies, scaled, (ALL, S(0))),
    "tensor": (
        lambda model: split_layers(model, GRID),
        lambda graph: (scaled(graph), zero(3)(graph)),
        (GRID, (S(0), B)),
    ),
    "stages": (to_stages, with_stages, None),
    "auto": (lambda model: None, auto(scaled), ()),
}
"""How parameters are laid, what is set, and where inputs go: none for stages, () for local ones."""


def fed(layout: str, x: Tensor, y: Tensor) -> tuple[Any, Any]:
    where = LAYOUTS[layout][2]
    if where == () or SIZE == 1:
        return x, y
    if where is None:
        return spread(x, FIRST, S(0)), spread(y, LAST, S(0))
    return spread(x, *where), spread(y, *where)


def graph_of(layout: str) -> Any:
    model = model_of("GPT")
    put, settings, _ = LAYOUTS[layout]
    if SIZE > 1:
        put(model)
    elif layout == "stages":
        settings = scaled
    return Train(model, adam(model), settings)


def flat(state: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in state.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def logical(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """A state as whole tensors; all ranks come here."""
    tensors = {name: value for name, value in flat(state) if isinstance(value, Tensor)}
    return {
        name: torch.from_numpy(t.detach().numpy()) if isinstance(t, GlobalTensor) else t.detach().clone()
        for name, t in tensors.items()
    }


def equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Parameters, two states of each, the loss scale and the counters."""
    assert found.keys() == expected.keys() and len(found) > 3 * 15, (len(found), found.keys() ^ expected.keys())
    wrong = [name for name, value in found.items() if not torch.equal(value.reshape(-1), expected[name].reshape(-1))]
    assert not wrong, (len(wrong), wrong[:5])


def law_four_ranks_save() -> None:
    if SIZE != 4:
        return
    for layout in LAYOUTS:
        graph = graph_of(layout)
        for x, y in batches("GPT", STEPS):
            graph(*fed(layout, x, y))
        state = graph.state_dict()
        flow.save(state, str(FOLDER / layout), global_dst_rank=0)
        dcp.save(state, checkpoint_id=FOLDER / f"{layout}.dcp")
        expected = logical(state)
        after = [graph(*fed(layout, x, y)).numpy() for x, y in batches("GPT", 1)]
        if RANK == 0:
            torch.save((expected, torch.from_numpy(after[0])), FOLDER / f"{layout}.expected")
    torch.distributed.barrier()


OTHER = {"zero": "tensor", "tensor": "stages", "stages": "auto", "auto": "zero"}
TRIED = list(OTHER) if SIZE < 4 else ["zero"]


def law_a_saved_state_loads_bit_by_bit_in_any_layout() -> None:
    for layout in TRIED:
        expected, after = torch.load(FOLDER / f"{layout}.expected")
        graph = graph_of(OTHER[layout])
        graph.load_state_dict(flow.load(str(FOLDER / layout), **({"global_src_rank": 0} if SIZE > 1 else {})))
        equal(logical(graph.state_dict()), expected)
        found = graph(*fed(OTHER[layout], *batches("GPT", 1)[0]))  # and goes on as if it had not been saved
        close([torch.from_numpy(found.detach().numpy())], [after], 1e-4)


def law_a_sharded_checkpoint_loads_bit_by_bit_in_any_layout() -> None:
    """torch's DCP reads into tensors that are there: those of a graph that is built and has not run."""
    for layout in ["tensor"] if SIZE > 1 else TRIED:
        expected, _ = torch.load(FOLDER / f"{layout}.expected")
        template = graph_of(OTHER[layout])
        template.build_graph(*fed(OTHER[layout], *batches("GPT", 1)[0]))
        state = template.state_dict()
        dcp.load(state, checkpoint_id=FOLDER / f"{layout}.dcp", no_dist=SIZE == 1)
        equal(logical(state), expected)
        model = template._graph.modules["model"]
        resumed = Train(model, adam(model), scaled)
        resumed.load_state_dict(state)
        equal(logical(resumed.state_dict()), expected)
