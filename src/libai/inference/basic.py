"""From inputs to answers: what the pipelines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

import oneflow as flow
from libai.config import LazyConfig
from libai.config.complete import completed
from libai.config.errors import ConfigError
from libai.config.names import locate
from libai.config.tree import copied
from libai.inference.loaders import loader_of
from libai.models.build import build_model
from libai.models.utils.model_loader.base_loader import ModelLoaderLiBai
from libai.tokenizer import build_tokenizer
from libai.utils import distributed as dist
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError

MODES = ("libai", "huggingface", "random")


class BasePipeline(ABC):
    """A model of a config with its weights, and what turns inputs into what it takes and what it gives into answers.

    ``config_file`` defines ``model``, and ``tokenization`` where texts go in. ``mode`` says what ``model_path`` is,
    which may also be ``model.cfg.pretrained_model_path``: the folder of a checkpoint ("libai"), one of transformers
    ("huggingface"), or nothing ("random"). Sizes that are not given are 1. All ranks make it and call it together; rank
    0 gets the answer, the others ``{}``.
    """

    def __init__(
        self,
        config_file: Any,
        data_parallel: int | None = None,
        tensor_parallel: int | None = None,
        pipeline_parallel: int | None = None,
        pipeline_stage_id: list[int] | None = None,
        pipeline_num_layers: int | None = None,
        model_path: str | None = None,
        mode: str = "libai",
        device: str = "cuda",
        **kwargs: Any,
    ) -> None:
        self.cfg: Any = _config(config_file)
        self.device = device
        self.update_cfg(
            data_parallel or 1, tensor_parallel or 1, pipeline_parallel or 1, pipeline_stage_id, pipeline_num_layers
        )
        dist.setup_dist_util(self.cfg.train.dist)
        self.model: Any = self._placed_model(model_path, mode)
        self.model.eval()
        self.tokenizer: Any = self._shared_tokenizer()
        self._preprocess_params, self._forward_params, self._postprocess_params = self._parse_parameters(**kwargs)

    def update_cfg(
        self,
        data_parallel: int = 1,
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        pipeline_stage_id: list[int] | None = None,
        pipeline_num_layers: int | None = None,
    ) -> None:
        """Writes the sizes into the config, which is the pipeline's own copy."""
        sizes = {
            "data_parallel_size": data_parallel,
            "tensor_parallel_size": tensor_parallel,
            "pipeline_parallel_size": pipeline_parallel,
            "custom_pipeline_stage_id": pipeline_stage_id,
            "device_type": self.device,
        }
        self.cfg.train.dist.update(sizes)
        if pipeline_num_layers is not None:
            self.cfg.train.dist.pipeline_num_layers = pipeline_num_layers

    def _placed_model(self, model_path: str | None, mode: str) -> nn.Module:
        said = self.cfg.model.get("cfg") or {}
        path = model_path or said.get("pretrained_model_path")
        if mode not in MODES:
            raise ArgumentError(f"mode is one of {', '.join(MODES)}, got {mode!r}")
        if mode != "random" and not path:
            raise ArgumentError(
                f"mode={mode!r} needs the folder of the weights: give model_path, or model.cfg.pretrained_model_path "
                f"in the config"
            )
        return self.load_pretrain_weight(self.cfg.model, path, mode)

    def load_pretrain_weight(self, libai_cfg_model: Any, model_path: str | None, mode: str = "libai") -> nn.Module:
        """The model with the weights of a folder. A pipeline of one's own may take other folders."""
        if mode == "random":
            return build_model(libai_cfg_model)
        cfg = libai_cfg_model.get("cfg")
        kind = ModelLoaderLiBai if mode == "libai" else loader_of(_target(libai_cfg_model))
        model: nn.Module = kind(libai_cfg_model, libai_cfg_model if cfg is None else cfg, str(model_path)).load()
        return model

    def build_tokenizer(self, cfg: Any) -> Any:
        """The tokenizer that the config describes; None if it describes none."""
        described = cfg.get("tokenization")
        return None if described is None or described.get("tokenizer") is None else build_tokenizer(described)

    def _shared_tokenizer(self) -> Any:
        """Rank 0 reads its files."""
        failed, made = None, None
        if dist.is_main_process():
            try:
                made = self.build_tokenizer(self.cfg)
            except Exception as error:  # told to the others, who wait
                failed = error
        failed, made = dist.broadcast_py_object((failed, made))
        if failed is not None:
            raise failed
        return made

    def _parse_parameters(self, **pipeline_parameters: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Which parameters belong to ``preprocess``, ``forward`` and ``postprocess``."""
        before = {name: pipeline_parameters.pop(name) for name in self.preprocess_names if name in pipeline_parameters}
        after = {name: pipeline_parameters.pop(name) for name in self.postprocess_names if name in pipeline_parameters}
        return before, pipeline_parameters, after

    preprocess_names: tuple[str, ...] = ("pad",)
    postprocess_names: tuple[str, ...] = ("function_to_apply", "return_all_scores")

    def __call__(self, inputs: Any, *args: Any, batch_size: int | None = None, **kwargs: Any) -> Any:
        """The answer to ``inputs``, on rank 0; parameters override those that the pipeline was made with.
        ``batch_size`` inputs of a list go in at a time."""
        if batch_size is not None and isinstance(inputs, (list, tuple)):
            answers = [self(list(inputs[i : i + batch_size]), **kwargs) for i in range(0, len(inputs), batch_size)]
            return [one for answer in answers for one in answer] if dist.is_main_process() else {}
        before, during, after = self._parse_parameters(**kwargs)
        with torch.no_grad():
            given = self.preprocess(inputs, **{**self._preprocess_params, **before})
            found = self.to_local(self.forward(given, **{**self._forward_params, **during}))
        answer = self.postprocess(found, **{**self._postprocess_params, **after}) if dist.is_main_process() else {}
        dist.synchronize()
        return answer

    def to_local(self, model_outputs_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors as local ones: whole on rank 0, and empty on the others."""
        kept: dict[str, Any] = {}
        for name, value in model_outputs_dict.items():
            is_tensor: bool = flow.is_tensor(value)
            kept[name] = (
                dist.tensor_to_rank0(value, device=value.placement.type, to_local=True)
                if is_tensor and value.is_global
                else value
            )
        return kept

    def to_global(self, value: torch.Tensor) -> Any:
        """A tensor that every rank has, as the model takes it."""
        whole: Any = value
        return whole.to_global(dist.get_layer_placement(0), dist.get_nd_sbp([flow.sbp.broadcast, flow.sbp.broadcast]))

    @abstractmethod
    def preprocess(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """What the model is called with, global tensors by name."""

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """What the model gives, tensors by name."""

    @abstractmethod
    def postprocess(self, *args: Any, **kwargs: Any) -> Any:
        """The answer, on rank 0."""


def _config(config_file: Any) -> DictConfig:
    cfg = copied(
        LazyConfig.load(str(config_file))
        if isinstance(config_file, (str, Path))
        else OmegaConf.create(config_file, flags={"allow_objects": True})
    )
    if "model" not in cfg:
        raise ConfigError(f"the config {config_file} has no 'model'; a pipeline needs model = LazyCall(...)(cfg=cfg)")
    if "train" not in cfg:
        cfg.train = {}
    return completed(cfg)


def _target(lazy: Any) -> Any:
    return locate(lazy["_target_"]) if isinstance(lazy["_target_"], str) else lazy["_target_"]


def scores_of(logits: torch.Tensor, function_to_apply: str | None) -> torch.Tensor:
    """Scores as probabilities: "softmax", "sigmoid" or "none"; by default softmax, sigmoid for a single class."""
    name = function_to_apply or ("sigmoid" if logits.shape[-1] == 1 else "softmax")
    known = {"softmax": lambda x: x.softmax(-1), "sigmoid": torch.sigmoid, "none": lambda x: x}
    if name not in known:
        raise ArgumentError(f"function_to_apply is one of {', '.join(known)}, got {name!r}")
    return known[name](logits)


def labelled(scores: torch.Tensor, names: Mapping[int, str], is_all: bool) -> Any:
    """The likeliest label of one sample with its score; all of them with ``is_all``."""
    every = [{"label": names[i], "score": score} for i, score in enumerate(scores.tolist())]
    return every if is_all else max(every, key=lambda one: one["score"])
