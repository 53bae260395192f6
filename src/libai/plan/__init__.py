"""What a run of a config would cost each rank, known without starting one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import oneflow as flow
from libai.config.complete import completed, require_fields
from libai.engine.setup import resolved
from libai.models import build_graph, build_model
from libai.optim import build_optimizer
from libai.plan.inputs import Field, fields_of
from libai.utils import distributed as dist

if TYPE_CHECKING:
    from oneflow.engine.plan.report import Plan

__all__ = ["plan_config"]


def plan_config(cfg: Any) -> Plan:
    """The plan of a step of training as a config describes it, on ``train.dist``'s data * tensor * pipeline parallel
    devices; no data is read.

    Batches are as long as the data set, or else the model, says. A model of one's own needs a data set whose first
    sample is looked at.
    """
    given = completed(cfg)
    require_fields(given, "model", "graph", "optim")
    sizes = given.train.dist
    world = sizes.data_parallel_size * sizes.tensor_parallel_size * sizes.pipeline_parallel_size
    fields = fields_of(given)
    with flow.planned_world(world), dist.laid_out(sizes):
        ready = resolved(given)
        model = build_model(ready.model)
        graph = build_graph(ready, model, build_optimizer(ready.optim, model), None, is_train=True)
        model.train()
        rows = ready.train.train_micro_batch_size * ready.train.num_accumulation_steps
        return flow.plan(graph, **{name: _laid(field, rows) for name, field in fields.items()})


def _laid(field: Field, rows: int) -> Any:
    """A batch without data: so many rows on each data parallel rank."""
    part: Any = flow.empty(rows, *field.shape, dtype=field.dtype)
    return part.to_global(dist.get_layer_placement(field.layer), dist.get_hidden_sbp())
