"""The steps of training and evaluation as graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import oneflow as flow
from fastnn.flags import Flags
from fastnn.losses import classification_loss
from fastnn.models.model_factory import NetworkFn
from oneflow import nn


class TrainGraph(nn.Graph):
    """One step: loss, backward pass, update. It takes NHWC pictures and labels, and gives the loss and the accuracy of
    the batch."""

    def __init__(
        self, network_fn: NetworkFn, optimizer: torch.optim.Optimizer, schedule: Any, flags: Flags, device: str
    ) -> None:
        super().__init__()
        self.network = network_fn.module
        self._network_fn = network_fn
        self._label_smoothing = flags.label_smoothing
        self.add_optimizer(optimizer, lr_sch=schedule)
        set_precision(self, flags, device)
        if flags.loss_scale != 1.0:
            self.set_grad_scaler(flow.amp.StaticGradScaler(flags.loss_scale))
        self.config.enable_dynamic_shapes(True)  # the last batch may be short

    def build(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The step."""
        loss, accuracy = classification_loss(self._network_fn, images, labels, self._label_smoothing)
        loss.backward()
        return loss, accuracy


class EvalGraph(nn.Graph):
    """Logits of NHWC pictures."""

    def __init__(self, network_fn: NetworkFn, flags: Flags, device: str) -> None:
        super().__init__()
        self.network = network_fn.module
        self._network_fn = network_fn
        set_precision(self, flags, device)
        self.config.enable_dynamic_shapes(True)

    def build(self, images: Tensor) -> Tensor:
        """One batch."""
        return self._network_fn(images)[0].float()


def set_precision(graph: nn.Graph, flags: Flags, device: str) -> None:
    """Mixed precision where the flags ask for it: float16 on a GPU (never run where the tests run: no GPU there),
    bfloat16 on a CPU."""
    if not flags.use_fp16:
        return
    if device != "cpu":
        graph.config.enable_amp(True)
    elif flags.cpu_bfloat16:
        graph.config.enable_amp(True, dtype=flow.bfloat16)
