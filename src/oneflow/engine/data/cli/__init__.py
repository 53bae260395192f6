"""The command line of the data package. One file per verb; each adds its arguments and gives back an exit code.

0: done. 1: it could not be done, or ``verify`` found problems. 2: the command line itself is wrong. 130: interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from oneflow.engine.core.errors import OneFlowError
from oneflow.engine.data.cli import cifar10, convert, imagenet, make, mnist, show, verify

VERBS = {
    "make": make,
    "imagenet": imagenet,
    "mnist": mnist,
    "cifar10": cifar10,
    "convert": convert,
    "show": show,
    "verify": verify,
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        with _termination_cleans_up():
            return arguments.run(arguments)
    except OneFlowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing half written was left", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m oneflow.data", description="OFRecord and TFRecord data sets.")
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        added = verbs.add_parser(name, help=verb.HELP, description=verb.HELP)
        verb.arguments(added)
        added.set_defaults(run=verb.run)
    return parser


@contextmanager
def _termination_cleans_up() -> Iterator[None]:
    """SIGTERM ends the program like an exit, so that files being written are taken away."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
