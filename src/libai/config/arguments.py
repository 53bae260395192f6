"""The command line of training programs."""

from __future__ import annotations

import argparse

_EPILOG = """overrides, behind all flags:
  train.train_iter=100 optim.lr=1e-3        numbers, true, false, null, text
  train.output_dir='my runs/1'              text with blanks
  dataloader.test.0.num_workers=0           an element of a list
  train.dist={tensor_parallel_size:2}       several keys at once

on several processes:
  python -m oneflow.distributed.launch --nproc_per_node 2 tools/train_net.py --config-file configs/config.py
"""


def default_argument_parser(epilog: str | None = None) -> argparse.ArgumentParser:
    """The flags of ``tools/train_net.py``: ``config_file``, ``resume``, ``eval_only``, ``fast_dev_run``, and ``opts``,
    the overrides."""
    parser = argparse.ArgumentParser(epilog=epilog or _EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--config-file", default="", metavar="FILE", help="a config: a .py file, or a .yaml file that a run has saved"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in train.output_dir")
    parser.add_argument(
        "--eval-only",
        action="store_true",
        help="evaluate train.load_weight, or with --resume the last checkpoint, and end",
    )
    parser.add_argument(
        "--fast-dev-run", action="store_true", help="20 iterations, evaluation every 10, to see that everything runs"
    )
    parser.add_argument(
        "opts", nargs=argparse.REMAINDER, metavar="key=value", help="overrides of the config; they come last"
    )
    return parser
