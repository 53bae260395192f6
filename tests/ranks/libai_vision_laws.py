"""LiBai's models of pictures train, and are evaluated in between, in every kind of parallelism as one process does, with dropout and drop paths.

One process is a graph of local tensors, which every rank runs for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from global_rank import RANK, SIZE, spread
from libai_small_models import Batch
from libai_small_vision import SMALL_VISION

import oneflow as flow
from libai.config import LazyCall
from libai.models import build_model
from libai.models.utils import GraphBase
from libai.utils import distributed as dist

STEPS, ROWS, SEED = 2, 8, 11
Found = tuple[list[float], list[torch.Tensor], dict[str, torch.Tensor]]


def adam(model: Any) -> Any:
    """Gradients that are nothing but rounding, as those of the bias of a key are, make no step."""
    return flow.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3, weight_decay=0.1)


def whole(value: Any) -> torch.Tensor:
    return torch.from_numpy(value.detach().numpy()) if value.is_global else value.detach().clone()


def trained(name: str, model: Any, graph: Any, laid: Callable[[str, Any], Any]) -> Found:
    """The loss of each step, the scores behind it, and the weights at the end."""
    draw = torch.Generator().manual_seed(7)
    batches: list[Batch] = [SMALL_VISION[name].batch(ROWS, draw) for _ in range(STEPS)]
    losses, scores = [], []
    evaluate = GraphBase(model, is_train=False)
    for batch in batches:
        model.train()
        losses.append(whole(graph(**{key: laid(key, field) for key, field in batch.items()})["losses"]).mean().item())
        model.eval()
        scores.append(whole(evaluate(images=laid("images", batch["images"]))["prediction_scores"]))
    return losses, scores, {key: whole(value) for key, value in model.state_dict().items()}


@cache
def alone(name: str, steps: int) -> Found:
    """One process."""
    dist.setup_dist_util({})
    torch.manual_seed(SEED)
    model = SMALL_VISION[name].make().to_local()
    return trained(name, model, GraphBase(model, adam(model), grad_acc_steps=steps), lambda key, field: field)


def run(name: str, steps: int = 1, **settings: Any) -> None:
    """Trains in the layout that ``settings`` of ``train.dist`` say; other settings are those of the graph."""
    expected = alone(name, steps)
    sizes = {key: settings.pop(key, 1) for key in ("tensor_parallel_size", "pipeline_parallel_size")}
    small = SMALL_VISION[name]
    dist.setup_dist_util({**sizes, "pipeline_num_layers": small.layers})
    torch.manual_seed(SEED + RANK)  # rank 0's counts
    model = build_model(LazyCall(small.kind)(cfg=small.config()))
    graph = GraphBase(model, adam(model), grad_acc_steps=steps, **settings)
    if "zero_stage" in settings:
        graph.config.enable_zero(True, stage=settings["zero_stage"], shard_min_size=1)
    torch.manual_seed(SEED)

    def laid(key: str, field: torch.Tensor) -> Any:
        return spread(field, dist.get_layer_placement(-1 if key in small.late else 0), dist.get_hidden_sbp())

    losses, scores, weights = trained(name, model, graph, laid)
    torch.testing.assert_close(losses, expected[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores, expected[1], rtol=1e-4, atol=1e-5)
    for key, value in expected[2].items():
        torch.testing.assert_close(weights[key], value, rtol=2e-5, atol=2e-5, msg=lambda text, key=key: f"{key}: {text}")


_TENSOR, _STAGES = {"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2, "steps": 2}
ON_TWO: dict[str, dict[str, Any]] = {
    "data": {},
    "tensor": _TENSOR,
    "stages": _STAGES,
    "zero_1_mixed_precision": {"zero_optim": True, "zero_stage": 1, "fp16": True},
    "zero_3_accumulation_checkpointing": {"zero_optim": True, "zero_stage": 3, "steps": 2, "activation_checkpoint": True},
}
ON_FOUR: dict[str, dict[str, Any]] = {
    "data_tensor": _TENSOR,
    "data_stages": _STAGES,
    "tensor_stages_checkpointing": {**_TENSOR, **_STAGES, "activation_checkpoint": True},
}
# Every model in the three plain kinds; of what is put on top of them, and of kinds put together, each is shown by two models that differ most in it.
SOME = {
    "zero_1_mixed_precision": ("ViT", "SwinV2"),
    "zero_3_accumulation_checkpointing": ("Swin", "ResMLP"),
    "data_tensor": ("Swin", "ResMLP"),
    "data_stages": ("ViT", "SwinV2"),
    "tensor_stages_checkpointing": ("ViT", "Swin"),
}
LAWS = {
    size: {f"law_{name}_by_{cell}": partial(run, name, **settings) for cell, settings in cells.items() for name in SOME.get(cell, SMALL_VISION)}
    for size, cells in ((2, ON_TWO), (4, ON_FOUR))
}
globals().update(LAWS.get(SIZE, {}))
