"""PAISoar's part in a FastNN program: data parallel training by a loop of one's own.

    optimizer = paisoar.ReplicatedVarsOptimizer(optimizer, clip_norm=FLAGS.max_gradient_norm)
    loss = optimizer.compute_loss(loss_fn, loss_scale=FLAGS.loss_scale)
    train_op = optimizer.minimize(loss, global_step=global_step)
    while ...:
        train_op()

``fastnn.train`` compiles the whole step into a graph instead; this is for programs that write their own loss closure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import oneflow as flow
from fastnn.errors import FlagError
from fastnn.flags import FLAGS

LossFn = Callable[[], Tensor]


class ReplicatedLoss:
    """The loss that ``compute_loss`` was given: ``replicas`` has those of this worker's last step."""

    def __init__(self, loss_fn: LossFn, loss_scale: float) -> None:
        self.loss_fn, self.loss_scale = loss_fn, loss_scale
        self.replicas: list[Tensor] = []

    def compute(self) -> Tensor:
        """Calls the closure once."""
        loss = self.loss_fn()
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise FlagError(
                f"loss_fn gives one scalar loss, got {loss!r:.200}; keep other tensors in variables around it"
            )
        self.replicas = [loss.detach()]
        return loss


class ReplicatedVarsOptimizer:
    """An optimizer whose gradients are the mean over all workers, clipped by ``clip_norm`` after that. Every worker has
    all variables."""

    def __init__(self, optimizer: torch.optim.Optimizer, clip_norm: float | None = None) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise FlagError(
                f"ReplicatedVarsOptimizer takes an optimizer of torch, such as fastnn.optimizers.create gives; got "
                f"{type(optimizer).__name__}"
            )
        self._optimizer = optimizer
        self._clip_norm = clip_norm
        self._is_alike = False

    def compute_loss(self, loss_fn: LossFn, loss_scale: float = 1.0) -> ReplicatedLoss:
        """The loss of each worker's own batch: ``loss_fn`` is called in every step."""
        if not callable(loss_fn):
            raise FlagError(f"compute_loss takes a function without arguments that gives the loss, got {loss_fn!r}")
        return ReplicatedLoss(loss_fn, loss_scale)

    def minimize(self, loss: ReplicatedLoss, global_step: Any = None) -> Callable[[], Tensor]:
        """``train_op``: each call is one step and gives its loss. ``global_step``, a tensor, is counted on."""

        def train_op() -> Tensor:
            params = [p for group in self._optimizer.param_groups for p in group["params"]]
            self._start_alike(params)
            self._optimizer.zero_grad(set_to_none=True)
            value = loss.compute()
            (value * loss.loss_scale).backward()
            grads = [p.grad for p in params if p.grad is not None]
            _average(grads, 1.0 / loss.loss_scale)
            if self._clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(params, self._clip_norm)
            self._optimizer.step()
            if isinstance(global_step, Tensor):
                global_step.add_(1)
            return value.detach()

        return train_op

    def _start_alike(self, params: list[Tensor]) -> None:
        """All workers start from the first one's variables."""
        if not self._is_alike and flow.env.get_world_size() > 1:
            with torch.no_grad():
                for p in params:
                    flow.comm.broadcast(p.data, 0)
        self._is_alike = True


def _average(grads: list[Tensor], scale: float) -> None:
    """The mean over workers times ``scale``, in place, in buckets of ``--tensor_fusion_max_bytes``."""
    workers = flow.env.get_world_size()
    if workers > 1:
        for bucket in _buckets(grads, FLAGS.tensor_fusion_max_bytes):
            flat = torch.cat([grad.reshape(-1) for grad in bucket])
            flow.comm.all_reduce(flat)
            for grad, part in zip(bucket, flat.split([grad.numel() for grad in bucket])):
                grad.copy_(part.view_as(grad))
    if workers > 1 or scale != 1.0:
        torch._foreach_mul_(grads, scale / workers)


def _buckets(grads: list[Tensor], most: int) -> list[list[Tensor]]:
    """Gradients of one dtype put together, from the last to the first: as the backward pass makes them."""
    found: list[list[Tensor]] = []
    size = most
    for grad in reversed(grads):
        bytes_ = grad.numel() * grad.element_size()
        if size + bytes_ > most or found[-1][0].dtype is not grad.dtype:
            found.append([])
            size = 0
        found[-1].append(grad)
        size += bytes_
    return found
