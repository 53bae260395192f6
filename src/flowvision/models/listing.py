"""``oneflow models '*resnet*'``, also ``python -m flowvision.models.listing``: the networks of the registry by name."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Sequence

import torch

from flowvision.models import ModelCreator, slim
from oneflow.engine.core.errors import nearest

_EPILOG = """examples:
  oneflow models
  oneflow models '*resnet*' vgg16 --parameters
  oneflow models --slim 'mobilenet*'
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the names that match; the exit code is 1 if none does."""
    args = _parser().parse_args(argv)
    known = slim.list_models() if args.slim else ModelCreator.model_list()
    names = [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in args.patterns or ["*"])]
    if not names:
        print(_no_match(args.patterns, known), file=sys.stderr)
        return 1
    try:
        _print_models(names, args)
    except BrokenPipeError:  # the reader of our output, such as head, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oneflow models",
        description="Lists the image classifiers of flowvision.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("patterns", nargs="*", metavar="PATTERN", help="names or shell wildcards (default: all models)")
    parser.add_argument("--parameters", action="store_true", help="count parameters; takes about 0.2 s per model")
    parser.add_argument("--slim", action="store_true", help="list the networks of TensorFlow's slim library instead")
    return parser


def _print_models(names: Sequence[str], args: argparse.Namespace) -> None:
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {_parameters(name, args.slim):>12,}" if args.parameters else name, flush=True)
    create = "slim.create_model" if args.slim else "ModelCreator.create_model"
    package = "flowvision.models import slim" if args.slim else "flowvision.models import ModelCreator"
    print(f"{len(names)} models. Next step: from {package}; {create}({names[0]!r})", file=sys.stderr)


def _parameters(name: str, is_slim: bool) -> int:
    """Counts without allocating memory."""
    with torch.device("meta"):
        model = slim.create_model(name) if is_slim else ModelCreator.create_model(name)
    return sum(parameter.numel() for parameter in model.parameters())


def _no_match(patterns: Sequence[str], known: Sequence[str]) -> str:
    words = [pattern.strip("*") for pattern in patterns]
    hint = next((text for text in (nearest(word, known) for word in words) if text), "")
    return f"no model matches {' '.join(patterns)};{hint} quote wildcards, such as '*resnet*'. oneflow models lists all"


if __name__ == "__main__":
    raise SystemExit(main())
