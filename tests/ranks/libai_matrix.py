"""The matrix of libai's models: each trains, and evaluates in between, in every kind of parallelism as one process
does, with dropout.

One process trains every model first, as a graph of local tensors and op by op, and leaves what it found in the folder
``LIBAI_MATRIX``; ranks compare with it. A row is a model, a column is settings of ``train`` in a config. The tests run
a selection; ``MATRIX_ALL=1`` has every cell.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from global_rank import RANK, SIZE, spread
from libai_small_models import SMALL, Batch, Small
from libai_small_vision import SMALL_VISION

import oneflow as flow
from libai.config import LazyCall
from libai.models import build_model
from libai.models.utils import GraphBase
from libai.models.utils.graph_base import total_loss
from libai.models.utils.recompute import recompute_eagerly
from libai.utils import distributed as dist

STEPS, ROWS, SEED = 2, 16, 11
MODELS: dict[str, Small] = {**SMALL, **SMALL_VISION}
Found = tuple[list[float], list[torch.Tensor], dict[str, torch.Tensor]]
Laid = Callable[[str, torch.Tensor], Any]


def adam(model: Any) -> Any:
    """Gradients that are nothing but rounding, as those of the bias of a key are, make no step."""
    return flow.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)


def batches(name: str) -> list[Batch]:
    draw = torch.Generator().manual_seed(7)
    return [MODELS[name].batch(ROWS, draw) for _ in range(STEPS)]


def whole(value: Any) -> torch.Tensor:
    return torch.from_numpy(value.detach().numpy()) if value.is_global else value.detach().clone()


def trained(name: str, model: Any, train: Any, evaluate: Any, laid: Laid) -> Found:
    """The losses of each step, the scores that the model gives behind each, and the weights at the end."""
    losses, scores = [], []
    for batch in batches(name):
        model.train()
        losses.append(train(batch, laid))
        model.eval()
        given = evaluate(**{key: laid(key, field) for key, field in batch.items() if key not in MODELS[name].late})
        scores.append(whole(next(given[key] for key in ("prediction_scores", "logits") if key in given)))
    return losses, scores, {key: whole(value) for key, value in model.state_dict().items()}


def by_graph(graph: Any, batch: Batch, laid: Laid) -> float:
    outputs = graph(**{key: laid(key, field) for key, field in batch.items()})
    return float(sum(whole(value).mean() for key, value in outputs.items() if "loss" in key))


def by_ops(model: Any, optimizer: Any, steps: int, batch: Batch, laid: Laid) -> float:
    """As the trainer without a graph does it: ``steps`` batches, then an update."""
    losses = []
    for part in range(steps):
        rows = slice(part * ROWS // steps, (part + 1) * ROWS // steps)
        loss = total_loss(model(**{key: laid(key, field[rows]) for key, field in batch.items()}), model) / steps
        loss.backward()
        losses.append(float(whole(loss)))
    optimizer.step()
    optimizer.zero_grad()
    return sum(losses)


def run(
    name: str,
    steps: int = 1,
    eager: bool = False,
    activation_checkpoint: bool = False,
    zero_stage: int = 0,
    **settings: Any,
) -> Found:
    """Trains in the layout that ``settings`` of ``train.dist`` say; other settings are those of the graph."""
    small = MODELS[name]
    sizes = {key: settings.pop(key, 1) for key in ("tensor_parallel_size", "pipeline_parallel_size")}
    dist.setup_dist_util({**sizes, "pipeline_num_layers": small.layers})
    torch.manual_seed(SEED + RANK)  # rank 0's counts
    model = build_model(LazyCall(small.kind)(cfg=small.config()))
    torch.manual_seed(SEED)
    if eager:
        if activation_checkpoint:
            recompute_eagerly(model)
        return trained(
            name, model, partial(by_ops, model, adam(model), steps), torch.no_grad()(model), partial(laid_for, small)
        )
    graph = GraphBase(
        model,
        adam(model),
        grad_acc_steps=steps,
        activation_checkpoint=activation_checkpoint,
        zero_optim=zero_stage > 0,
        zero_stage=zero_stage,
        **settings,
    )
    if zero_stage:
        graph.config.enable_zero(True, stage=zero_stage, shard_min_size=1)  # these tensors are small
    return trained(name, model, partial(by_graph, graph), GraphBase(model, is_train=False), partial(laid_for, small))


def laid_for(small: Small, key: str, field: torch.Tensor) -> Any:
    return spread(field, dist.get_layer_placement(-1 if key in small.late else 0), dist.get_hidden_sbp())


def alone(name: str, steps: int) -> Found:
    """One process, by a graph of local tensors."""
    dist.setup_dist_util({})
    torch.manual_seed(SEED)
    model = MODELS[name].make().to_local()
    torch.manual_seed(SEED)
    return trained(
        name,
        model,
        partial(by_graph, GraphBase(model, adam(model), grad_acc_steps=steps)),
        GraphBase(model, is_train=False),
        lambda key, field: field,
    )


def file_of(name: str, steps: int, eager: bool) -> Path:
    return Path(os.environ["LIBAI_MATRIX"], f"{name} {steps} {'eager' if eager else 'graph'}")


def leave(name: str, steps: int, eager: bool) -> None:
    """What one process finds, for the ranks that come later."""
    torch.save(run(name, steps, eager=True) if eager else alone(name, steps), file_of(name, steps, eager))


def check(name: str, settings: dict[str, Any]) -> None:
    expected: Found = torch.load(file_of(name, settings.get("steps", 1), settings.get("eager", False)))
    found = run(name, **settings)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=2e-5)
    for key, value in expected[2].items():
        torch.testing.assert_close(
            found[2][key], value, rtol=2e-5, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


_TENSOR, _STAGES, _AGAIN = (
    {"tensor_parallel_size": 2},
    {"pipeline_parallel_size": 2, "steps": 2},
    {"activation_checkpoint": True},
)
_EAGER = {"eager": True}
# In rows: the selection has every model in one row at least, the next model in the next column, and every column once.
COLUMNS: dict[int, dict[str, dict[str, Any]]] = {
    2: {
        "tensor": _TENSOR,
        "stages": _STAGES,
        "tensor_accumulation_checkpointing": {**_TENSOR, "steps": 2, **_AGAIN},
        "eager_tensor": {**_EAGER, **_TENSOR},
        "search": {"auto_parallel_conf": {"enabled": True}},
        "eager_stages": {**_EAGER, **_STAGES},
        "eager_data": _EAGER,
        "eager_accumulation_checkpointing": {**_EAGER, "steps": 2, **_AGAIN},
        "data": {},
        #
        "zero_1": {"zero_stage": 1},
        "zero_2": {"zero_stage": 2},
        "zero_3": {"zero_stage": 3},
        "accumulation": {"steps": 2},
        "zero_1_mixed_precision": {"zero_stage": 1, "fp16": True},
        "zero_2_accumulation": {"zero_stage": 2, "steps": 2},
        "zero_3_accumulation_checkpointing": {"zero_stage": 3, "steps": 2, **_AGAIN},
        "checkpointing": _AGAIN,
        "mixed_precision": {"fp16": True},
    },
    4: {
        "data_stages": _STAGES,
        "data_tensor_zero_2_accumulation": {**_TENSOR, "zero_stage": 2, "steps": 2},
        "tensor_stages": {**_TENSOR, **_STAGES},
        "data_tensor": _TENSOR,
        "data_stages_zero_1_mixed_precision": {**_STAGES, "zero_stage": 1, "fp16": True},
        "tensor_stages_checkpointing": {**_TENSOR, **_STAGES, **_AGAIN},
        "data_tensor_zero_3_checkpointing": {**_TENSOR, "zero_stage": 3, **_AGAIN},
        "eager_data_stages": {**_EAGER, **_STAGES},
        "eager_data_tensor": {**_EAGER, **_TENSOR},
        "data_stages_zero_2": {**_STAGES, "zero_stage": 2},
        "eager_tensor_stages": {**_EAGER, **_TENSOR, **_STAGES},
        "data_stages_zero_3": {**_STAGES, "zero_stage": 3},
        "data_tensor_zero_1": {**_TENSOR, "zero_stage": 1},
        "data_tensor_search": {**_TENSOR, "auto_parallel_conf": {"enabled": True}},
    },
    8: {
        "data_tensor_stages": {**_TENSOR, **_STAGES},
        "data_tensor_stages_zero_1_checkpointing": {**_TENSOR, **_STAGES, "zero_stage": 1, **_AGAIN},
    },
}
WIDTH = {2: 9, 4: 14}
"""How many columns a row of :data:`COLUMNS` has."""


def is_chosen(size: int, row: int, column: int) -> bool:
    if os.environ.get("MATRIX_ALL"):
        return True
    # Of two models whose turn it is the second has the column in the first row, the first in the next.
    rows = [one for one in range(len(MODELS)) if size in WIDTH and (column - one) % WIDTH[size] == 0]
    return bool(rows) and row == rows[0 if column >= WIDTH[size] else -1]


def cells(size: int) -> list[tuple[str, str]]:
    return [
        (name, column)
        for row, name in enumerate(MODELS)
        for number, column in enumerate(COLUMNS[size])
        if is_chosen(size, row, number)
    ]


def laws(size: int) -> dict[str, Callable[[], None]]:
    """Those of a world of so many ranks; a world of one leaves what the others need."""
    if size > 1:
        return {f"law_{name}_by_{column}": partial(check, name, COLUMNS[size][column]) for name, column in cells(size)}
    needed = {
        (name, told.get("steps", 1), told.get("eager", False))
        for size in COLUMNS
        for name, column in cells(size)
        for told in [COLUMNS[size][column]]
    }
    return {f"law_{name}_{steps}_{eager}": partial(leave, name, steps, eager) for name, steps, eager in sorted(needed)}


globals().update(laws(SIZE))
