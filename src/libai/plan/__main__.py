"""``python -m libai.plan --config-file c.py [--output plan.html] [key=value ...]``: what each rank would compute, hold
and send in a step, for any number of devices; none is needed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from libai.config import LazyConfig
from libai.config.complete import completed
from libai.plan import plan_config
from libai.train import add_project_to_path
from oneflow.engine.core.errors import OneFlowError

_EPILOG = """the devices are train.dist's, data * tensor * pipeline parallel:
  python -m libai.plan --config-file gpt.py train.dist={data_parallel_size:8,tensor_parallel_size:16,pipeline_parallel_size:8,pipeline_num_layers:24}
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints what each rank costs, and writes the whole plan."""
    parser = argparse.ArgumentParser(
        prog="python -m libai.plan",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config-file",
        required=True,
        metavar="FILE",
        help="a config: a .py file, or a .yaml file that a run has saved",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="a .html, .txt or .json file; without it plan.html in train.output_dir, where libai.board shows it",
    )
    parser.add_argument(
        "opts", nargs=argparse.REMAINDER, metavar="key=value", help="overrides of the config; they come last"
    )
    args = parser.parse_args(arguments)
    add_project_to_path(args.config_file)
    cfg = completed(LazyConfig.apply_overrides(LazyConfig.load(args.config_file), args.opts))
    plan = plan_config(cfg)
    path = args.output or os.path.join(cfg.train.output_dir, "plan.html")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    plan.save(path)
    print(plan.overview())
    print(f"\nthe whole plan: {path}")


if __name__ == "__main__":
    try:
        main()
    except OneFlowError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
