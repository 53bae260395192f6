"""Which stage of a pipeline each module of a model belongs to, and how many layers a model has."""

from __future__ import annotations

from typing import Any

from libai.config.errors import ConfigError
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.nn.graph import GraphModule


def set_stages(model: Any) -> None:
    """Says of every module of a graph's model that has a ``layer_idx`` the stage of that layer. What has none runs
    where its inputs lie."""
    for module in model.modules():
        layer = vars(module.to(nn.Module)).get("layer_idx")
        if isinstance(layer, int):
            module.to(GraphModule).set_stage(
                dist.get_dist_util().get_layer_stage_id(layer), dist.get_layer_placement(layer)
            )


def require_layers(model: nn.Module) -> None:
    """Refuses a pipeline whose ``train.dist.pipeline_num_layers`` is not the number of layers of a model that numbers
    them."""
    told = dist.get_dist_util().pipeline_num_layers
    numbers = [
        layer for layer in (vars(module).get("layer_idx") for module in model.modules()) if isinstance(layer, int)
    ]
    if dist.get_pipeline_parallel_size() > 1 and numbers and max(numbers) + 1 != told:
        raise ConfigError(
            f"train.dist.pipeline_num_layers={told}, but {type(model).__name__} has {max(numbers) + 1} layers; set it "
            f"to {max(numbers) + 1}"
        )
