"""Models with weights from a folder: one that this package or LiBai has saved, or one of ``transformers``."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

import oneflow as flow
from libai.config import instantiate
from libai.models.utils.model_loader.families import Family
from libai.models.utils.model_loader.folders import NoWeightsError, read_config, read_weights
from libai.models.utils.model_loader.rules import converted
from libai.models.utils.placing import place
from libai.utils import distributed as dist
from libai.utils.checkpoint import get_missing_parameters_message, get_unexpected_parameters_message, laid_as
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError, CheckpointError
from oneflow.engine.global_tensor.gather_to import from_rank

_log = logging.getLogger(__name__)


class ModelLoader:
    """Makes a model and gives it weights. All ranks call :meth:`load`; the first one reads.

    ``model`` is a class that takes ``libai_cfg``, a ``LazyCall`` of one, or a model that was built already. ``kwargs``
    override keys of ``libai_cfg``, which itself is not changed. With ``output_loading_info=True`` :meth:`load` gives
    the model and a dictionary of ``missing_keys``, ``unexpected_keys`` and ``mismatched_keys``;
    ``ignore_mismatched_sizes=True`` leaves weights of other shapes as they were made, which is an error otherwise.
    """

    def __init__(self, model: Any, libai_cfg: Any, pretrained_model_path: str, **kwargs: Any) -> None:
        self.model = model
        self.libai_cfg = copy.deepcopy(libai_cfg)
        self.pretrained_model_path = str(pretrained_model_path)
        self.output_loading_info = kwargs.pop("output_loading_info", False)
        self.ignore_mismatched_sizes = kwargs.pop("ignore_mismatched_sizes", False)
        self.kwargs = kwargs

    def load(self) -> Any:
        """The model with its weights, in evaluation mode."""
        raise NotImplementedError("take ModelLoaderLiBai, or the loader of a model such as BertLoaderHuggerFace")

    def _set(self, changes: Mapping[str, Any], is_forced: bool = False) -> None:
        """Changes the config: keys that it has, or all."""
        for name, value in changes.items():
            if self.libai_cfg is not None and (is_forced or name in self.libai_cfg):
                self.libai_cfg[name] = value

    def _built(self) -> nn.Module:
        """The model by its config, laid on the ranks."""
        model = self.model
        if isinstance(model, DictConfig) and "_target_" in model:
            model = copy.deepcopy(model)
            if "cfg" in model:
                model.cfg = self.libai_cfg
            else:
                model.update(
                    {
                        name: value
                        for name, value in (self.libai_cfg or {}).items()
                        if name in model and name != "_target_"
                    }
                )
            model = instantiate(model)
        elif not isinstance(model, nn.Module):
            if not callable(model):
                raise ArgumentError(
                    f"model is a class such as libai.models.BertModel, a LazyCall of one, or a model; got "
                    f"{type(model).__name__}"
                )
            model = model(self.libai_cfg)
        place(model)
        built: nn.Module = model.eval()
        return built

    def _filled(
        self, state: Mapping[str, Any], unused: list[str], model: nn.Module, is_computed: Callable[[str], bool]
    ) -> Any:
        """The model with what ``state`` has for it, and the report."""
        own = model.state_dict()
        fitting = {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}
        other = [
            (name, tuple(value.shape), tuple(own[name].shape))
            for name, value in state.items()
            if name in own and name not in fitting
        ]
        info = {
            "missing_keys": [name for name in own if name not in state and not is_computed(name)],
            "unexpected_keys": [*unused, *(name for name in state if name not in own)],
            "mismatched_keys": other,
        }
        self._judge(model, info, bool(fitting))
        with torch.no_grad():
            for name, value in fitting.items():
                own[name].copy_(laid_as(value, own[name]))
        return (model, info) if self.output_loading_info else model

    def _judge(self, model: nn.Module, info: Mapping[str, Any], has_any: bool) -> None:
        if not has_any:
            first = ", ".join(info["unexpected_keys"][:5]) or "none"
            raise NoWeightsError(
                f"{self.pretrained_model_path!r} has no weight of {type(model).__name__}; it has {first} ..."
            )
        if info["mismatched_keys"] and not self.ignore_mismatched_sizes:
            name, theirs, ours = info["mismatched_keys"][0]
            more = f", and {len(info['mismatched_keys']) - 1} more" if len(info["mismatched_keys"]) > 1 else ""
            raise CheckpointError(
                f"{name} is {theirs} in {self.pretrained_model_path!r} and {ours} in the model{more}: give the config "
                f"of these weights, "
                "or ignore_mismatched_sizes=True to keep the first values of such weights"
            )
        if info["missing_keys"]:
            _log.warning(get_missing_parameters_message(info["missing_keys"]))
        if info["unexpected_keys"]:
            _log.warning(get_unexpected_parameters_message(info["unexpected_keys"]))


class ModelLoaderLiBai(ModelLoader):
    """From the folder of a checkpoint, or that of the weights in it, as ``flow.save`` has written it, here or in
    OneFlow."""

    base_model_prefix = ""

    def load(self) -> Any:
        self._set(self.kwargs, is_forced=True)
        path = Path(self.pretrained_model_path)
        state = _read_by_first(lambda: _saved(path))
        model = self._built()
        return self._filled(_with_prefix_of(state, self.base_model_prefix, model), [], model, lambda name: False)


class ModelLoaderHuggerFace(ModelLoader):
    """From a folder of ``transformers``: ``config.json``, and ``*.bin`` or ``*.safetensors``, with an index or
    without."""

    family: Family

    def load(self) -> Any:
        folder = Path(self.pretrained_model_path)
        config = from_rank(lambda: _config_of(folder, self.family), 0)
        if config is None:
            _log.warning(
                "%s has no config.json: the weights are taken to be those of the config that was given", folder
            )
        else:
            self._set(self.family.settings(config))
            self._set(self.family.forced(config), is_forced=True)
        self._set(self.kwargs, is_forced=True)
        read = _read_by_first(lambda: self._read(folder))
        model = self._built()
        state = _with_prefix_of(read["state"], self.family.our_prefix, model, read["base"])
        return self._filled(
            state, read["unused"], model, lambda name: re.search(self.family.computed, name) is not None
        )

    def _read(self, folder: Path) -> dict[str, Any]:
        """Ours, by the names below the prefix of the base model; which of them those are; and what was not used."""
        family = self.family
        theirs = {
            _old_name(name).removeprefix(family.their_prefix): value for name, value in read_weights(folder).items()
        }
        theirs = {name: value for name, value in theirs.items() if re.search(family.ignored, name) is None}
        rules = family.rules(self.libai_cfg)
        state, _, unused = converted(rules, theirs)
        return {"state": state, "unused": unused, "base": [rule.ours for rule in rules if rule.is_base]}


def _read_by_first(read: Callable[[], Any]) -> Any:
    """What the first rank reads; its tensors are global and lie there, or local in a process alone."""
    return read() if dist.get_world_size() == 1 else from_rank(read, 0)


def _config_of(folder: Path, family: Family) -> dict[str, Any] | None:
    if not folder.is_dir():
        read_weights(folder)  # says what is wrong
    config = read_config(folder)
    if config is not None and config.get("model_type", family.model_type) != family.model_type:
        raise CheckpointError(
            f"{str(folder)!r} has a model of type {config['model_type']!r}, this loader takes {family.model_type!r}: "
            f"take the loader of that type"
        )
    return config


def _saved(path: Path) -> dict[str, Any]:
    """The weights in a folder of flow.save, or in the folder ``model`` of a checkpoint."""
    inner = path / "model"
    found = flow.load(inner if inner.is_dir() and not (path / "pickled_data").exists() else path)
    if not isinstance(found, Mapping):
        raise NoWeightsError(f"{str(path)!r} holds no weights by name, but a {type(found).__name__}")
    return {name.removeprefix("module."): value for name, value in found.items() if flow.is_tensor(value)}


def _with_prefix_of(
    state: Mapping[str, Any], prefix: str, model: nn.Module, base: list[str] | None = None
) -> dict[str, Any]:
    """Names as the model has them: of a base model alone, or below ``prefix`` in one with a head. ``base`` are the
    names that may have it."""
    if not prefix:
        return dict(state)
    has_prefix = any(name.startswith(prefix) for name in model.state_dict())
    if base is None:
        bare = {name.removeprefix(prefix): value for name, value in state.items()}
        own = set(model.state_dict())
        return {prefix + name if has_prefix and prefix + name in own else name: value for name, value in bare.items()}
    return {prefix + name if has_prefix and name in base else name: value for name, value in state.items()}


def _old_name(name: str) -> str:
    """Names of the first releases as they are now."""
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
