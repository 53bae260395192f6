"""What is common to the models of one kind, in both libraries: settings and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libai.layers.activation import GeLUTanh
from libai.models.utils.model_loader.rules import Rule, renamed
from oneflow import nn
from oneflow.engine.core.errors import CheckpointError


class Family:
    """A kind of model. Names of weights stand below ``their_prefix`` and ``our_prefix`` in models with a head."""

    model_type: str
    their_prefix: str
    our_prefix = ""
    names: Mapping[str, str]
    """Settings of theirs, and what ours are called."""
    ignored = r"$^"
    """Tensors of theirs that ours need not: a pattern."""
    computed = r"$^"
    """Tensors of ours that are computed, not loaded."""

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Our settings by theirs."""
        return renamed(config, self.names)

    def forced(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of ours without which the weights mean something else."""
        return {}

    def rules(self, cfg: Any) -> list[Rule]:
        """How weights are made of each other, for our settings."""
        raise NotImplementedError

    def described(self, model: Any) -> dict[str, Any]:
        """Our settings, as a model has them."""
        raise NotImplementedError

    def their_config(self, model: Any, cfg: Mapping[str, Any]) -> dict[str, Any]:
        """``config.json`` of a model with our settings ``cfg``."""
        back = {ours: theirs for theirs, ours in self.names.items()}
        return {"model_type": self.model_type, **renamed(cfg, back)}

    def architecture(self, model: Any) -> str:
        """The class of theirs that the model is one of."""
        raise NotImplementedError


def require_one_of(config: Mapping[str, Any], name: str, allowed: tuple[Any, ...]) -> None:
    """Refuses settings that our models have not."""
    if name in config and config[name] not in allowed:
        raise CheckpointError(f"config.json has {name}={config[name]!r}; supported: {', '.join(map(repr, allowed))}")


TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def special_tokens(config: Any) -> dict[str, Any]:
    """The tokens that texts begin, end and are filled up with, which ``generate`` asks the config for; those that are
    not said are left out."""
    return {name: config[name] for name in TOKENS if config is not None and config.get(name) is not None}


def require_residual(layer: Any, is_behind: bool, kind: str) -> None:
    """Refuses layers that add to another place than theirs do."""
    if layer.apply_residual_post_layernorm is not is_behind:
        raise CheckpointError(
            f"{kind} of transformers has apply_residual_post_layernorm={is_behind}, and this model has "
            f"{not is_behind}: its weights mean something else there. "
            f"Build and train it with apply_residual_post_layernorm={is_behind}"
        )


def activation_of(mlp: Any, names: Mapping[str, str]) -> str:
    """What theirs call the activation of a layer."""
    ours = next((name for name in _ACTIVATIONS if isinstance(mlp.activation, _ACTIVATIONS[name])), None)
    if ours is None or ours not in names:
        raise CheckpointError(
            f"the activation {type(mlp.activation).__name__} has no counterpart; supported: {', '.join(names)}"
        )
    return names[ours]


_ACTIVATIONS = {"gelu": nn.GELU, "gelu_tanh": GeLUTanh}


def labels_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The number of classes, where the config tells it."""
    count = config.get("num_labels") or len(config.get("id2label") or ())
    return {"num_classes": count} if count else {}
