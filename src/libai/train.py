"""``python -m libai.train --config-file configs/config.py``: trains, or evaluates, what a config describes.
``tools/train_net.py`` is the same program."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from libai.config import LazyConfig, default_argument_parser
from libai.config.complete import completed
from libai.config.errors import ConfigError
from libai.engine import DefaultTrainer, default_setup
from libai.engine.seeding import seed_run
from libai.utils import distributed as dist
from libai.utils.checkpoint import Checkpointer
from oneflow.engine.core.errors import OneFlowError

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> Any:
    """Runs the program of the command line; returns the results of the last evaluation."""
    args = default_argument_parser().parse_args(arguments)
    if not args.config_file:
        raise ConfigError("--config-file is needed: a config in Python, or the config.yaml that a run has saved")
    add_project_to_path(args.config_file)
    cfg = LazyConfig.apply_overrides(LazyConfig.load(args.config_file), args.opts)
    default_setup(cfg, args)
    seed_run(completed(cfg).train.seed, dist.get_rank())
    if args.fast_dev_run:
        shorten(cfg)
    return evaluate(cfg, args.resume) if args.eval_only else DefaultTrainer(cfg).train()


def add_project_to_path(config_file: str) -> None:
    """Lets a config import the modules of its project: those beside the folder that it is in, and those of the working
    directory."""
    grandparent = os.path.dirname(os.path.dirname(os.path.abspath(config_file)))
    for folder in (grandparent, os.getcwd()):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def shorten(cfg: Any) -> None:
    """--fast-dev-run: 20 iterations, an evaluation after 10."""
    cfg.train.train_epoch = 0
    cfg.train.train_iter = 20
    if "evaluation" not in cfg.train:
        cfg.train.evaluation = {}
    cfg.train.evaluation.eval_period = 10
    cfg.train.log_period = 1


def evaluate(cfg: Any, resume: bool) -> dict[str, Any]:
    """--eval-only: the results of ``train.load_weight``, or with ``resume`` of the last checkpoint, on the loaders of
    ``dataloader.test``."""
    cfg = completed(cfg)
    tokenizer = DefaultTrainer.tokenizer_for_model(cfg)
    model = DefaultTrainer.build_model(cfg)
    checkpointer = Checkpointer(model, save_dir=cfg.train.output_dir)
    if resume:
        checkpointer.load(checkpointer.get_checkpoint_file(), checkpointables=[])
    else:
        checkpointer.load(cfg.train.load_weight, checkpointables=[])
    runs = DefaultTrainer.build_graph(cfg, model, is_train=False) if cfg.graph.enabled else model
    loaders = DefaultTrainer.build_test_loader(cfg, tokenizer)
    if not loaders:
        _log.info("No dataset in dataloader.test, please set dataset for dataloader.test")
    return DefaultTrainer.test(cfg, loaders, runs)


def run() -> None:
    """The program: an error that says what to do is printed without the way through this package."""
    try:
        main()
    except OneFlowError as error:
        if not getattr(error, "is_logged", False) or not dist.is_main_process():
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:  # the log says what was saved
        sys.exit(130)
    except Exception as error:
        if getattr(error, "is_logged", False) and dist.is_main_process():
            sys.exit(1)
        raise


if __name__ == "__main__":
    run()
