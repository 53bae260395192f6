"""The matrix: every model trains in every kind of parallelism as it does in one process, for some steps, with dropout.

One process is a graph of local tensors, trained once for all cells by one of the ranks; without dropout it is a loop of
plain torch.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from global_rank import RANK, SIZE, B, S, spread
from graph_laws import ALL, GRID, Evaluate, Train, close, nothing, whole
from matrix_models import CASES, batches, made, module_at
from torch import Tensor, nn

import oneflow as flow
from oneflow.engine.global_tensor.placement import placement
from oneflow.nn.graph import GraphModule

EVERY = bool(os.environ.get("MATRIX_ALL"))
STEPS = 10 if EVERY else 4
HALF = max(1, SIZE // 2)
State = dict[str, Tensor]


def adam(model: nn.Module) -> Any:
    """Gradients that are nothing but rounding, as those of the bias of a key are, make no step."""
    return flow.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)


def accumulated(graph: Any) -> None:
    graph.config.set_gradient_accumulation_steps(2)


# ------------------------------------------------------------------ one process


def alone(name: str, settings: Any) -> Callable[[], tuple[list[Tensor], State]]:
    """A run to be begun: every rank has the graph, since ranks count their graphs, and one trains it."""
    model = made(name)
    graph = Train(model, adam(model), settings)
    return lambda: ([graph(x, y).detach().clone() for x, y in batches(name, STEPS)], state_of(model))


def plain(name: str) -> tuple[list[Tensor], State]:
    """A loop of plain torch, without dropout."""
    model = made(name, with_dropout=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)
    found = []
    for x, y in batches(name, STEPS):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found, state_of(model)


def state_of(model: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


KINDS: dict[str, Callable[[str], Callable[[], tuple[list[Tensor], State]]]] = {
    "step": partial(alone, settings=nothing),
    "accumulated": partial(alone, settings=accumulated),
    "plain": lambda name: partial(plain, name),
}


@lru_cache(maxsize=None)
def reference(kind: str, name: str) -> tuple[list[Tensor], State]:
    """What one process trains: one rank does, and tells the others."""
    trainer, train = list(CASES).index(name) % SIZE, KINDS[kind](name)
    found: list[Any] = [train() if trainer == RANK else None]
    flow.comm.barrier()
    torch.distributed.broadcast_object_list(found, trainer)
    return found[0]


def same(model: nn.Module, expected: State, tolerance: float = 2e-5) -> None:
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(
            whole(tensor), expected[name], rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


# ------------------------------------------------------------------ how parameters lie


def split_by(name: str, path: str, kind: str) -> Any:
    """Of tensor parallelism: the first of two layers is split by its outputs, the second by its inputs."""
    case = CASES[name]
    if path.endswith(case.columns):
        return S(int(case.is_transposed and kind == "weight"))
    return S(int(not case.is_transposed)) if case.rows and path.endswith(case.rows) and kind == "weight" else B


def lay(model: nn.Module, where: Callable[[str, str], tuple[Any, Any]]) -> nn.Module:
    """Makes parameters and buffers global; ``where`` says of a module's path and a name the placement and the SBP."""
    done: dict[int, Any] = {}
    for path, module in model.named_modules():
        for name, tensor in list(module._parameters.items()):
            if tensor is not None:
                module._parameters[name] = done.setdefault(id(tensor), nn.Parameter(spread(tensor, *where(path, name))))
        for name, tensor in list(module._buffers.items()):
            module._buffers[name] = (
                None
                if tensor is None
                else spread(tensor, where(path, name)[0], (B,) * len(where(path, name)[0].hierarchy))
            )
    return model


def in_layers(name: str, place: Any) -> Callable[[str, str], tuple[Any, Any]]:
    return lambda path, kind: (place, (B,) * (len(place.hierarchy) - 1) + (split_by(name, path, kind),))


def in_stages(name: str, places: tuple[Any, Any], splits: bool) -> Callable[[str, str], tuple[Any, Any]]:
    def where(path: str, kind: str) -> tuple[Any, Any]:
        place = places[CASES[name].is_last(path)]
        return place, (B,) * (len(place.hierarchy) - 1) + (split_by(name, path, kind) if splits else B,)

    return where


def staged(name: str, places: tuple[Any, Any]) -> Callable[[Any], None]:
    """The modules of the second stage; everything else runs on the first."""

    def stages(graph: Any) -> None:
        case, model = CASES[name], graph.model.origin
        graph.model.to(GraphModule).set_stage(0, places[0])
        tops = [
            path
            for path, _ in model.named_modules()
            if path and case.is_last(path) and not case.is_last(path.rpartition(".")[0])
        ]
        for path in tops:
            module_at(graph.model, path).to(GraphModule).set_stage(1, places[1])

    return stages


# ------------------------------------------------------------------ cells


def run(name: str, model: nn.Module, inputs: Any, settings: Any, kind: str, first: Any = ALL, last: Any = None) -> Any:
    """Trains in a graph and compares with one process. Inputs lie on ``first``, what they are compared with on
    ``last``."""
    losses, expected = reference(kind, name)
    graph = Train(model, adam(model), settings)
    found = [whole(graph(spread(x, first, inputs), spread(y, last or first, inputs))) for x, y in batches(name, STEPS)]
    close(found, losses)
    same(model, expected)
    return graph


def both(*settings: Any) -> Callable[[Any], None]:
    def set_all(graph: Any) -> None:
        for one in settings:
            one(graph)

    return set_all


def zero(stage: int) -> Callable[[Any], None]:
    return lambda graph: graph.config.enable_zero(True, stage=stage, shard_min_size=1)


def checkpointed(name: str) -> Callable[[Any], None]:
    return lambda graph: setattr(
        module_at(graph.model, CASES[name].regions).to(GraphModule), "activation_checkpointing", True
    )


def data_parallel(name: str, settings: Any = nothing, kind: str = "step") -> Any:
    return run(name, made(name, kind != "plain").to_global(ALL, B), S(0), settings, kind)


def tensor_parallel(name: str, settings: Any = nothing, place: Any = ALL, kind: str = "step") -> Any:
    inputs = (S(0), B) if len(place.hierarchy) == 2 else B
    return run(name, lay(made(name), in_layers(name, place)), inputs, settings, kind, place)


def pipeline(name: str, settings: Any = nothing, kind: str = "step", splits: bool = False) -> Any:
    ranks = range(HALF), range(HALF, 2 * HALF)
    places = tuple(placement("cpu", [list(part)] if splits else part) for part in ranks)
    inputs = (S(0), B) if splits else S(0)
    return run(
        name,
        lay(made(name), in_stages(name, places, splits)),
        inputs,
        both(staged(name, places), settings),
        kind,
        *places,
    )


# ------------------------------------------------------------------ eager global tensors


def eager(name: str, model: nn.Module, inputs: Any, place: Any, first: int = 1) -> tuple[list[Tensor], nn.Module]:
    """A loop of global tensors. What modules make by themselves, such as positions, is global too."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)
    data = [(spread(x, place, inputs), spread(y, place, inputs)) for x, y in batches(name, STEPS)]
    found = []
    torch.manual_seed(first)
    for x, y in data:
        with flow.utils.global_view.global_mode(True, placement=place, sbp=(B,) * len(place.hierarchy)):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(whole(loss))
    return found, model


def eager_against_plain_torch(name: str) -> None:
    losses, expected = reference("plain", name)
    for inputs, where in ((S(0), lambda path, kind: (ALL, B)), (B, in_layers(name, ALL))):
        found, model = eager(name, lay(made(name, with_dropout=False), where), inputs, ALL)
        close(found, losses)
        same(model, expected)


def eager_with_dropout(name: str) -> None:
    """Masks are those of one rank, whatever the layout and the seeds of other ranks."""
    one = placement("cpu", [0])
    losses, alone = eager(name, made(name).to_global(one, B), B, one)
    expected = {key: whole(tensor) for key, tensor in alone.state_dict().items()}
    for place, inputs in ((ALL, S(0)), (GRID, (S(0), B))):
        found, model = eager(name, lay(made(name), in_layers(name, place)), inputs, place, first=1 + RANK)
        close(found, losses)
        same(model, expected)


# ------------------------------------------------------------------ what is no model's own


def mixed(graph: Any) -> None:
    graph.config.enable_amp(True, dtype=torch.bfloat16)


def graphs_evaluate_after_zero_and_mixed_precision() -> None:
    """With the parameters as training left them, split or not: what plain torch gives with these, in whole precision
    and in mixed."""
    for name, stage in (
        (("conv net", 1), ("GPT", 3), ("Swin", 3))
        if not EVERY
        else itertools.product(("conv net", "GPT", "Swin"), (1, 3))
    ):
        model = made(name).to_global(ALL, B)
        graph = Train(model, adam(model), both(mixed, zero(stage)))
        (x, y), (other, _) = batches(name, 2)
        graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))
        trained = {key: whole(tensor) for key, tensor in model.state_dict().items()}
        reference = made(name).eval()
        reference.load_state_dict(trained)
        model.eval()
        expected = reference(other).detach()
        close([whole(Evaluate(model)(spread(other, ALL, S(0))))], [expected])
        rounded = Evaluate(model)
        rounded.config.enable_amp(True, dtype=torch.bfloat16)
        close([whole(rounded(spread(other, ALL, S(0))).float())], [expected], 0.05)
        model.train()
        graph(spread(x, ALL, S(0)), spread(y, ALL, S(0)))  # goes on
        assert not torch.equal(whole(next(model.parameters())), next(iter(trained.values())))


def auto_parallel_trains_as_one_process_does() -> None:
    """Searching takes a while: some of the models."""
    for name in ("conv net", "GPT", "MLP", "ViT")[: 4 if EVERY else 2]:
        data_parallel(name, lambda graph: graph.config.enable_auto_parallel(True))


def eager_models_draw_the_masks_of_one_rank() -> None:
    for name in ("MLP", "conv net", "GPT"):
        eager_with_dropout(name)


# ------------------------------------------------------------------ the table


def everything(name: str) -> None:
    """Two stages, each of them data and tensor parallel, micro-batches, ZeRO, checkpointing."""
    pipeline(name, both(accumulated, zero(2), checkpointed(name)), "accumulated", splits=True)


ON_TWO: dict[str, Callable[[str], Any]] = {
    "data_parallel": data_parallel,
    "data_parallel_as_plain_torch_without_dropout": partial(data_parallel, kind="plain"),
    "tensor_parallel": tensor_parallel,
    "pipeline": pipeline,
    "zero_1": partial(data_parallel, settings=zero(1)),
    "zero_2": partial(data_parallel, settings=zero(2)),
    "zero_3": partial(data_parallel, settings=zero(3)),
    "accumulation": partial(data_parallel, settings=accumulated, kind="accumulated"),
    "checkpointing": lambda name: data_parallel(name, checkpointed(name)),
    "eager_global_tensors_as_plain_torch": eager_against_plain_torch,
}
ON_FOUR: dict[str, Callable[[str], Any]] = {
    "data_and_tensor_parallel": partial(tensor_parallel, place=GRID),
    "data_parallel_pipeline": pipeline,
    "tensor_parallel_and_zero_3": partial(tensor_parallel, settings=zero(3), place=GRID),
    "everything": everything,
}


def laws(
    cells: dict[str, Callable[[str], Any]], first: int, *others: Callable[[], None]
) -> dict[str, Callable[[], Any]]:
    """Every fourth cell of a table, each model's shifted by one, from the ``first`` on; with ``MATRIX_ALL=1`` every
    one."""
    table = [(row, name, column, cell) for column, cell in enumerate(cells) for row, name in enumerate(CASES)]
    chosen = [(name, cell) for row, name, column, cell in table if (row + column) % 4 == first or EVERY]
    of_models = {
        f"law_{name.replace(' ', '_').replace('-', '_')}_by_{cell}": partial(cells[cell], name) for name, cell in chosen
    }
    return of_models | {f"law_{law.__name__}": law for law in others}


LAWS = {
    2: laws(ON_TWO, 0, graphs_evaluate_after_zero_and_mixed_precision, auto_parallel_trains_as_one_process_does),
    4: laws(ON_FOUR, 1, eager_models_draw_the_masks_of_one_rank),
}
"""By the size of the world that they are tried on."""
globals().update(LAWS.get(SIZE, {}))
