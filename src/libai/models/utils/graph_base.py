"""The graph of a model: one step of training, or one batch of evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import oneflow as flow
from libai.models.utils.placing import is_cut_here, layers_of
from libai.models.utils.recompute import recomputed_in
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.core.errors import DTypeError
from oneflow.nn.graph import GraphModule

_LOSS_SCALE = 65536.0


class GraphBase(nn.Graph):
    """Calls ``model`` with what it is called with. In training the sum of all results whose names contain "loss" is
    trained on.

    ``fp16`` is mixed precision; on a CPU everything stays float32. ``activation_checkpoint`` computes activations again
    in the backward pass, ``grad_acc_steps`` cuts a batch into so many micro-batches, ``zero_optim`` shares the
    optimizer's state out among data parallel ranks.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any = None,
        lr_scheduler: Any = None,
        fp16: bool = False,
        activation_checkpoint: bool = False,
        grad_acc_steps: int = 1,
        zero_optim: bool = False,
        zero_stage: int = 0,
        is_train: bool = True,
        auto_parallel_conf: Mapping[str, Any] | None = None,
        global_mode: Mapping[str, Any] | None = None,
        device: str = "cuda",
    ) -> None:
        super().__init__()
        self.model: Any = model  # inside a graph a proxy of it
        self.is_train = is_train
        self.activation_checkpoint = activation_checkpoint
        self.is_global_mode = bool(global_mode and global_mode.get("enabled"))
        self.device_type = dist.available(device)
        if (
            is_train and auto_parallel_conf and auto_parallel_conf.get("enabled")
        ):  # an evaluation takes the weights as they lie then
            self._set_auto_parallel(auto_parallel_conf)
        if fp16:
            self.config.enable_amp(True)
        if is_train:
            self._set_training(optimizer, lr_scheduler, fp16, grad_acc_steps, zero_stage if zero_optim else 0)
        self.set_pipeline_stage_id()

    def _set_training(self, optimizer: Any, lr_scheduler: Any, fp16: bool, steps: int, zero_stage: int) -> None:
        self.add_optimizer(optimizer, lr_sch=lr_scheduler)
        if fp16 and self.device_type != "cpu":
            scale = _LOSS_SCALE * dist.get_data_parallel_size()
            self.set_grad_scaler(
                flow.amp.GradScaler(init_scale=scale, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000)
            )
        if steps > 1:
            self.config.set_gradient_accumulation_steps(steps)
        if zero_stage:
            self.config.enable_zero(True, stage=zero_stage)
        self.set_activation_checkpoint()

    def _set_auto_parallel(self, conf: Mapping[str, Any]) -> None:
        self.config.enable_auto_parallel(True)
        self.config.enable_auto_parallel_ignore_user_sbp_config(
            bool(conf.get("enable_auto_parallel_ignore_user_sbp_config", False))
        )
        self.config.enable_auto_parallel_trunk_algo(bool(conf.get("trunk_algo", True)))
        self.config.enable_auto_parallel_sbp_collector(bool(conf.get("sbp_collector", False)))

    def build(self, **kwargs: Any) -> Any:
        """One step."""
        if self.is_global_mode:
            with flow.utils.global_view.global_mode(
                True, placement=dist.get_layer_placement(0), sbp=dist.get_hidden_sbp()
            ):
                return self._run(kwargs)
        return self._run(kwargs)

    def _run(self, inputs: dict[str, Any]) -> Any:
        outputs = self.model(**inputs)
        if self.is_train:
            total_loss(outputs, self.model.to(nn.Module)).backward()
        return outputs

    def set_activation_checkpoint(self) -> None:
        """Marks the parts of the model whose activations are computed again; a model may do so itself by a static
        method of this name."""
        if not self.activation_checkpoint:
            return
        module = self.model.to(nn.Module)
        if hasattr(type(module), "set_activation_checkpoint"):
            type(module).set_activation_checkpoint(self.model)
            return
        for name in recomputed_in(module):
            self.model.get_submodule(name).to(GraphModule).activation_checkpointing = True

    def set_pipeline_stage_id(self) -> None:
        """Says which stage each layer belongs to; a model may do so itself by a static method of this name."""
        if dist.get_pipeline_parallel_size() == 1:
            return
        module = self.model.to(nn.Module)
        if hasattr(type(module), "set_pipeline_stage_id"):
            type(module).set_pipeline_stage_id(self.model)
            return
        names = {id(inner): name for name, inner in module.named_modules()}
        for layer, number in layers_of(module):
            if is_cut_here(layer):
                stage = dist.get_dist_util().get_layer_stage_id(number)
                self.model.get_submodule(names[id(layer)]).to(GraphModule).set_stage(
                    stage, dist.get_layer_placement(number)
                )


def total_loss(outputs: Any, model: Any) -> Any:
    """The sum of the results that training is about."""
    if not isinstance(outputs, Mapping):
        raise DTypeError(
            f"in training a model returns a dictionary such as {{'losses': loss}}; forward of {type(model).__name__} "
            f"returned {type(outputs).__name__}"
        )
    losses = [value for name, value in outputs.items() if "loss" in name]
    if not losses:
        raise DTypeError(
            f"forward of {type(model).__name__} returned {', '.join(outputs)} in training, and none of them has 'loss' "
            f"in its name; "
            "return {'losses': loss} while self.training"
        )
    return losses[0] if len(losses) == 1 else sum(losses[1:], losses[0])
