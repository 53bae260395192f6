"""The matrix of libai's models: each trains, and evaluates in between, in every kind of parallelism as one process does, with dropout.

One process is a graph of local tensors, trained once for all cells, each rank some of the models. Cells are settings of ``train`` in a config.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from global_rank import RANK, SIZE, spread
from libai_small_models import SMALL, Batch

import oneflow as flow
from libai.config import LazyCall
from libai.models import build_model
from libai.models.utils import GraphBase
from libai.utils import distributed as dist

STEPS, ROWS, SEED = 3, 8, 11
NAMES = ("BERT", "RoBERTa", "GPT", "T5", "Llama")
Found = tuple[list[float], list[float], dict[str, torch.Tensor]]


def adam(model: Any) -> Any:
    """Gradients that are nothing but rounding, as those of the bias of a key are, make no step."""
    return flow.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)


def batches(name: str) -> list[Batch]:
    draw = torch.Generator().manual_seed(7)
    return [SMALL[name].batch(ROWS, draw) for _ in range(STEPS)]


def whole(value: Any) -> torch.Tensor:
    return torch.from_numpy(value.detach().numpy()) if value.is_global else value.detach().clone()


def trained(name: str, model: Any, graph: Any, evaluate: Any, laid: Callable[[str, Any], Any]) -> Found:
    """The losses of each step, the mean square of the scores that it gives behind each, and the weights at the end."""
    losses, scores = [], []
    for batch in batches(name):
        model.train()
        outputs = graph(**{key: laid(key, field) for key, field in batch.items()})
        losses.append(float(sum(whole(value).mean() for key, value in outputs.items() if "loss" in key)))
        model.eval()
        inputs = {key: laid(key, field) for key, field in batch.items() if key not in SMALL[name].late}
        scores.append(float(whole(evaluate(**inputs)["prediction_scores"]).square().mean()))
    return losses, scores, {key: whole(value) for key, value in model.state_dict().items()}


def alone(name: str, steps: int, trains: bool) -> Found | None:
    """One process. All ranks build the model, and as many graphs, since graphs have numbers."""
    dist.setup_dist_util({})
    torch.manual_seed(SEED)
    model = SMALL[name].make().to_local()
    graphs = GraphBase(model, adam(model), grad_acc_steps=steps), GraphBase(model, is_train=False)
    return trained(name, model, *graphs, lambda key, field: field) if trains else None


@lru_cache(maxsize=None)
def references() -> dict[tuple[str, int], Found]:
    """What one process trains: every rank trains some of the models, and tells the others."""
    wanted = [(name, steps) for name in NAMES for steps in (1, 2)]
    mine = {key: alone(*key, trains=number % SIZE == RANK) for number, key in enumerate(wanted)}
    gathered: list[Any] = [None] * SIZE
    flow.comm.barrier()
    torch.distributed.all_gather_object(gathered, mine)
    return {key: value for part in gathered for key, value in part.items() if value is not None}


def run(name: str, steps: int = 1, **settings: Any) -> None:
    """Trains in the layout that ``settings`` of ``train.dist`` say; other settings are those of the graph."""
    sizes = {key: settings.pop(key, 1) for key in ("tensor_parallel_size", "pipeline_parallel_size")}
    expected = references()[name, steps]
    dist.setup_dist_util({**sizes, "pipeline_num_layers": 2})
    torch.manual_seed(SEED + RANK)  # rank 0's counts
    model = build_model(LazyCall(SMALL[name].kind)(cfg=SMALL[name].config()))
    stage = settings.pop("zero_stage", 0)
    graph = GraphBase(model, adam(model), grad_acc_steps=steps, zero_optim=stage > 0, zero_stage=stage, **settings)
    if stage:
        graph.config.enable_zero(True, stage=stage, shard_min_size=1)  # these tensors are small
    torch.manual_seed(SEED)
    compare(trained(name, model, graph, GraphBase(model, is_train=False), partial(laid_for, name)), expected)


def laid_for(name: str, key: str, field: torch.Tensor) -> Any:
    return spread(field, dist.get_layer_placement(-1 if key in SMALL[name].late else 0), dist.get_hidden_sbp())


def compare(found: Found, expected: Found) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5)
    for key, value in expected[2].items():
        torch.testing.assert_close(found[2][key], value, rtol=2e-5, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}")


_TENSOR, _STAGES = {"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2}
ON_TWO: dict[str, dict[str, Any]] = {
    "data_mixed_precision": {"fp16": True},
    "tensor": _TENSOR,
    "stages": {**_STAGES, "steps": 2},
    "zero_1": {"zero_stage": 1},
    "zero_3_accumulation_checkpointing": {"zero_stage": 3, "steps": 2, "activation_checkpoint": True},
}
ON_FOUR: dict[str, dict[str, Any]] = {
    "data_tensor": _TENSOR,
    "data_stages": {**_STAGES, "steps": 2},
    "tensor_stages_checkpointing": {**_TENSOR, **_STAGES, "steps": 2, "activation_checkpoint": True},
    "data_tensor_zero_2": {**_TENSOR, "zero_stage": 2, "steps": 2},
}
FEWER = {"RoBERTa": ("stages", "data_tensor"), "T5": ("tensor", "stages", "zero_3_accumulation_checkpointing", "data_tensor", "tensor_stages_checkpointing")}
"""RoBERTa is BERT in all but its positions; T5 takes longest."""


def cells(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {f"law_{name}_by_{cell}": partial(run, name, **told) for name in NAMES for cell, told in settings.items() if cell in FEWER.get(name, (cell,))}


LAWS = {2: cells(ON_TWO), 4: cells(ON_FOUR)}
"""By the size of the world that they are tried on."""
globals().update(LAWS.get(SIZE, {}))
