"""Models and their graphs from configs."""

from __future__ import annotations

from typing import Any

from libai.config import instantiate
from libai.config.complete import completed
from libai.config.errors import ConfigError
from libai.config.tree import where
from libai.models.utils.placing import place
from libai.models.utils.stages import require_layers
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.core.errors import DTypeError


def build_model(cfg: Any) -> nn.Module:
    """The module that a config describes, its parameters and buffers global tensors: where its layers lie, or whole on
    every rank of their stage."""
    model = instantiate(cfg)
    if not isinstance(model, nn.Module):
        raise DTypeError(
            f"model describes a subclass of oneflow.nn.Module, such as LazyCall(NeuralNetwork)(num_classes=10); got "
            f"{type(model).__name__}"
        )
    place(model)
    require_layers(model)
    return model


def _require_micro_batches(steps: int, file: str) -> None:
    """Refuses a pipeline through which one batch goes at a time: all stages but one would wait."""
    stages = dist.get_pipeline_parallel_size()
    if stages > 1 and steps == 1:
        raise ConfigError(
            f"train.dist.pipeline_parallel_size={stages} with train.num_accumulation_steps=1{file}: with one "
            f"micro-batch a stage works 1/{stages} of the time and "
            f"waits for the others for the rest; set train.num_accumulation_steps to {2 * stages} or more, "
            "and train_micro_batch_size to what one micro-batch has on a data parallel rank"
        )


def build_graph(
    cfg: Any, model: nn.Module, optimizer: Any = None, lr_scheduler: Any = None, is_train: bool = False
) -> nn.Graph:
    """The graph of the whole config ``cfg`` that trains or evaluates ``model``."""
    cfg = completed(cfg)
    train = cfg.train
    if is_train:
        _require_micro_batches(train.num_accumulation_steps or 1, where(cfg))
    settings: dict[str, Any] = {
        "model": model,
        "fp16": train.amp.enabled,
        "is_train": is_train,
        "auto_parallel_conf": cfg.graph.auto_parallel,
        "global_mode": cfg.graph.global_mode,
        "device": train.dist.device_type,
    }
    if is_train:
        settings |= {
            "optimizer": optimizer,
            "lr_scheduler": lr_scheduler,
            "activation_checkpoint": train.activation_checkpoint.enabled,
            "grad_acc_steps": train.num_accumulation_steps or 1,
            "zero_optim": train.zero_optimization.enabled,
            "zero_stage": train.zero_optimization.stage,
        }
    graph = instantiate(cfg.graph.train_graph if is_train else cfg.graph.eval_graph, **settings)
    graph.debug(cfg.graph.debug)
    return graph
