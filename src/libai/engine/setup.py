"""Setup of training programs: log, rank layout, batch sizes and the saved config."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

import oneflow as flow
from libai.config import LazyConfig
from libai.config.batch import batch_sizes
from libai.config.complete import DERIVED, completed, require_fields
from libai.config.errors import ConfigError
from libai.config.tree import copied, plain, where
from libai.utils import distributed as dist
from libai.utils.logger import setup_logger

CONFIG = "config.yaml"
_SIZES = ("data_parallel_size", "tensor_parallel_size", "pipeline_parallel_size")
_DERIVED_KEYS = (  # saved below ``derived``; all other keys are saved as given
    "train_micro_batch_size",
    "global_batch_size",
    "num_accumulation_steps",
    "train_iter",
    "warmup_iter",
    "samples",
    "start_iter",
)


def default_setup(cfg: Any, args: Any) -> None:
    """Prepares a run: makes the output folder, the log and the rank layout, checks sizes and saves the config.

    Args:
        cfg: The config. Only ``train.resume`` is set in it.
        args: The parsed command line: ``resume``, ``config_file`` and ``eval_only`` are read.
    """
    require_fields(cfg, "train")
    cfg.train.resume = bool(getattr(args, "resume", False))
    folder = completed(cfg).train.output_dir
    os.makedirs(folder, exist_ok=True)
    logger = setup_logger(folder, distributed_rank=dist.get_rank())
    given = completed(cfg)
    logger.info("Rank of current process: %d. World size: %d", dist.get_rank(), dist.get_world_size())
    logger.info("Command line arguments: %s", args)
    file = getattr(args, "config_file", "")
    if file:
        logger.info("Contents of args.config_file=%s:\n%s", file, Path(file).read_text(encoding="utf-8"))
    dist.setup_dist_util(given.train.dist)
    ready = resolved(given)
    if dist.is_main_process() and not (
        getattr(args, "eval_only", False) and Path(given.train.output_dir, CONFIG).exists()
    ):
        save_config(given, ready)
    _set_fusion(given)


def _set_fusion(cfg: DictConfig) -> None:
    """Sets the size of the buckets in which gradients are summed over ranks; 0 leaves it unchanged."""
    if cfg.train.nccl_fusion_threshold_mb:
        flow.boxing.nccl.set_fusion_threshold_mbytes(cfg.train.nccl_fusion_threshold_mb)
    if cfg.train.nccl_fusion_max_ops:
        flow.boxing.nccl.set_fusion_max_ops_num(cfg.train.nccl_fusion_max_ops)


def resolved(cfg: Any) -> DictConfig:
    """Returns a config with all defaults and derived sizes for the ranks of this run; ``cfg`` itself if complete."""
    given = completed(cfg)
    train, util = given.train, dist.get_dist_util()
    try:
        sizes = batch_sizes(
            train.train_micro_batch_size, train.global_batch_size, train.num_accumulation_steps, util.data_parallel_size
        )
    except ConfigError as error:
        raise ConfigError(f"{error.reason}{where(given)}") from None
    derived = {
        "train_micro_batch_size": sizes.micro,
        "global_batch_size": sizes.global_batch,
        "num_accumulation_steps": sizes.steps,
    }
    layout = {key: getattr(util, key) for key in _SIZES}
    _require_layout(given, layout)
    if (
        all(train[key] == value for key, value in derived.items())
        and all(train.dist[key] == value for key, value in layout.items())
        and "samples" in train
    ):
        return given
    ready = copied(given)
    ready.train.update(derived)
    ready.train.dist.update(layout)
    ready.train.samples = ready.train.train_iter * sizes.global_batch
    _force_precision(ready)
    return ready


def _require_layout(cfg: DictConfig, layout: dict[str, int]) -> None:
    """Raises a ConfigError if the config has other sizes than the rank layout of this process."""
    for key, size in layout.items():
        if cfg.train.dist[key] not in (None, 1, size) or (cfg.train.dist[key] == 1 != size and key != _SIZES[0]):
            raise ConfigError(
                f"train.dist.{key}={cfg.train.dist[key]}{where(cfg)}, but the rank layout of this process has {size}; "
                f"call libai.utils.distributed.setup_dist_util(cfg.train.dist) first, as default_setup does"
            )


def _force_precision(cfg: DictConfig) -> None:
    """Sets ``amp_enabled`` of models that have it."""
    model = cfg.get("model")
    inner = model.get("cfg") if isinstance(model, DictConfig) else None
    for node in (inner, model):
        if isinstance(node, DictConfig) and "amp_enabled" in node:
            node.amp_enabled = bool(cfg.train.amp.enabled and cfg.get("graph", {}).get("enabled", False))
            return


def save_config(given: DictConfig, ready: DictConfig) -> None:
    """Writes ``config.yaml``: the config as given, with defaults, and below ``derived`` what this run computed.

    The derived keys are not read again, so the file runs on any number of ranks.
    """
    derived = {key: ready.train[key] for key in _DERIVED_KEYS if key in ready.train}
    tree = plain(given) | {DERIVED: {"train": {**derived, "dist": {key: ready.train.dist[key] for key in _SIZES}}}}
    path = os.path.join(given.train.output_dir, CONFIG)
    LazyConfig.save(tree, path)
    logging.getLogger(__name__).info("Full config saved to %s", path)
