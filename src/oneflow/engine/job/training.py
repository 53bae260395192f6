"""What a train job does with its losses: settled when its trace ends."""

from __future__ import annotations

from collections.abc import Callable

from oneflow.engine.core.errors import ArgumentError, JobError, nearest
from oneflow.engine.ir.graph import Graph, VariableDecl
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ir.trained import trained_by
from oneflow.engine.job.settings import Settings
from oneflow.optimizer.conf import optimizer_from_conf
from oneflow.optimizer.loss_scale import static_loss_scale
from oneflow.optimizer.optimizers import Optimizer
from oneflow.optimizer.training import Training


def training_of(graph: Graph, settings: Settings, line: str) -> Training:
    """How the job of ``graph`` is trained; refuses one that has nothing to lower or nothing to change."""
    if not graph.losses:
        raise JobError(
            f"{line}: Loss blob not found. Train job {graph.job!r} adds no loss: call flow.losses.add_loss(blob) or "
            f"optimizer.minimize(blob)"
        )
    optimizer = _optimizer(graph, settings, line)
    named = [name for member in optimizer.members() for name in member.named() or ()]
    for name in [*named, *sorted(settings.row_wise)]:
        if name not in graph.decls:
            raise ArgumentError(
                f"{line}: job {graph.job!r} has no variable {name!r} for its optimizer.{nearest(name, graph.decls)}"
            )
    if not trained_by(graph, optimizer) and all(op_note(loss).spec.dtype.is_floating_point for loss in graph.losses):
        raise JobError(
            f"{line}: the losses of train job {graph.job!r} depend on no trainable variable, there is nothing to update"
        )
    scale = optimizer.loss_scale or static_loss_scale(settings.loss_scale_factor)
    threshold = settings.split_states_from if settings.splits_states else None
    return Training(optimizer, scale, settings.micro_batches, _coupled(settings), settings.row_wise, threshold)


def _optimizer(graph: Graph, settings: Settings, line: str) -> Optimizer:
    if settings.optimizer is not None:
        return settings.optimizer
    if settings.primary_lr is None or settings.model_update_conf is None:
        missing = "train.primary_lr" if settings.primary_lr is None else "train.model_update_conf"
        raise JobError(
            f"{line}: train job {graph.job!r} has no optimizer: {missing} is not set. Set train.primary_lr and "
            "train.model_update_conf, or call flow.optimizer.SGD(...).minimize(loss) in the body"
        )
    return optimizer_from_conf(settings.model_update_conf, settings.primary_lr, settings.secondary_lr)


def _coupled(settings: Settings) -> Callable[[VariableDecl], tuple[float, float]]:
    """L1 and L2 that are added to a variable's gradient: its regularizer's, and the job's for weights or biases."""

    def numbers(decl: VariableDecl) -> tuple[float, float]:
        bias = decl.model_name == "bias"
        l1, l2 = (settings.bias_l1, settings.bias_l2) if bias else (settings.weight_l1, settings.weight_l2)
        regularizer = decl.regularizer
        return (l1, l2) if regularizer is None else (l1 + regularizer.l1, l2 + regularizer.l2)

    return numbers
