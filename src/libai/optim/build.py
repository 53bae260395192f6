"""Parameter groups of a model, by kind of module and by name, and the optimizer of a config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from libai.config import instantiate
from oneflow.engine.core.errors import ArgumentError

# LayerNorm of oneflow itself is not among them: LiBai decays its weight, and so results would differ.
_NORMS = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
    nn.GroupNorm,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
)


def build_optimizer(cfg: Any, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that a config describes, on the parameters of ``model``. The config itself is left as it was."""
    return (
        instantiate(cfg, params={"model": model})
        if _asks_for_model(cfg)
        else instantiate(cfg, params=list(model.parameters()))
    )


def get_default_optimizer_params(
    model: nn.Module,
    base_lr: float | None = None,
    weight_decay: float | None = None,
    weight_decay_norm: float | None = None,
    weight_decay_bias: float | None = None,
    clip_grad_max_norm: float | None = None,
    clip_grad_norm_type: float | None = None,
    overrides: Mapping[str, Mapping[str, float]] | None = None,
    layer_norm_is_norm: bool = False,
) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer; parameters with the same options share a group.

    A parameter has ``base_lr`` as lr and ``weight_decay``, where they are given; ``weight_decay_norm`` in modules that
    normalise batches, groups or instances, and in LiBai's own LayerNorm; ``weight_decay_bias`` where its name is
    "bias"; then ``overrides``, options by the last part of a parameter's name. With both clipping options each group is
    clipped by the norm of its own gradients. Frozen parameters are left out, and shared ones come once.
    ``layer_norm_is_norm`` counts every LayerNorm and RMSNorm among the modules that normalise.
    """
    named = {name: dict(options) for name, options in (overrides or {}).items()}
    if weight_decay_bias is not None:
        if "bias" in named:
            raise ArgumentError(
                "Conflicting overrides for 'bias': give weight_decay_bias or overrides['bias'], not both"
            )
        named["bias"] = {"weight_decay": weight_decay_bias}
    defaults = {"lr": base_lr, "weight_decay": weight_decay}
    if clip_grad_max_norm is not None and clip_grad_norm_type is not None:
        defaults |= {"clip_grad_max_norm": clip_grad_max_norm, "clip_grad_norm_type": clip_grad_norm_type}
    given = {name: value for name, value in defaults.items() if value is not None}
    groups = []
    for module, name, parameter in _own_parameters(model):
        options = dict(given)
        if weight_decay_norm is not None and _normalises(module, layer_norm_is_norm):
            options["weight_decay"] = weight_decay_norm
        groups.append({"params": [parameter], **options, **named.get(name, {})})
    return reduce_param_groups(groups)


def reduce_param_groups(params: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups with those of equal options joined, in the order in which options first appear."""
    joined: dict[tuple[tuple[str, Any], ...], list[Any]] = {}
    for group in params:
        options = tuple(sorted((name, value) for name, value in group.items() if name != "params"))
        joined.setdefault(options, []).extend(group["params"])
    return [{"params": members, **dict(options)} for options, members in joined.items()]


def _own_parameters(model: nn.Module) -> Iterator[tuple[nn.Module, str, torch.Tensor]]:
    seen: set[int] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield module, name, parameter


def _normalises(module: nn.Module, layer_norm_is_norm: bool) -> bool:
    if isinstance(module, _NORMS) or getattr(module, "decays_as_norm", False):
        return True
    return layer_norm_is_norm and (
        isinstance(module, (nn.LayerNorm, nn.RMSNorm)) or type(module).__name__ in ("LayerNorm", "RMSLayerNorm")
    )


def _asks_for_model(cfg: Any) -> bool:
    params = cfg.get("params") if hasattr(cfg, "get") else None
    return params is not None and hasattr(params, "get") and "_target_" in params
