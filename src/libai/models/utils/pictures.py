"""What models that classify pictures share: their results, their losses out of configs, first values, and growing drop
paths."""

from __future__ import annotations

from typing import Any

from libai.config import instantiate
from libai.layers.laying import at_layer
from oneflow import nn
from oneflow.nn.graph import GraphModule


def truncated_normal(tensor: Any) -> Any:
    """Normal with standard deviation 0.02, cut at two."""
    return nn.init.trunc_normal_(tensor, std=0.02)


def classified(model: Any, scores: Any, labels: Any) -> dict[str, Any]:
    """In training and with labels the loss, else the scores."""
    if labels is not None and model.training:
        return {"losses": model.loss_func(scores, at_layer(labels, -1))}
    return {"prediction_scores": scores}


def loss_of(loss_func: Any) -> Any:
    """A loss: as given, as a config describes it, or cross entropy."""
    return nn.CrossEntropyLoss() if loss_func is None else instantiate(loss_func)


def growing(rate: float, layers: int) -> list[float]:
    """Of each layer the probability to be left out: nothing at the first, ``rate`` at the last."""
    return [rate * layer / max(layers - 1, 1) for layer in range(layers)]


def recompute(model: Any, kind: type[nn.Module]) -> None:
    """Marks the modules of a kind in a graph's model: their activations are computed again in the backward pass."""
    for module in model.modules():
        if isinstance(module.to(nn.Module), kind):
            module.to(GraphModule).activation_checkpointing = True
