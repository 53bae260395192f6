"""``oneflow COMMAND``, also ``python -m oneflow COMMAND``: one entry point for the commands of all packages.

Commands of oneflow are in ``_OWN``. Those of the packages above it, which oneflow may not import, are found by the
entry points of the group ``oneflow.commands``; other distributions may add theirs in the same way.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint

from oneflow.engine.core.errors import OneFlowError, nearest
from oneflow.engine.core.optional import MissingPackageError
from oneflow.version import __version__

__all__ = ["main"]

GROUP = "oneflow.commands"
_CONFIG_PLAN = "plan-config"
_OWN = {
    "doctor": "oneflow.doctor:main",
    "plan": "oneflow.engine.plan.cli:main",
    "launch": "oneflow.distributed.launch:main",
    "data": "oneflow.engine.data.cli:main",
}
# Commands of the other packages, with what to run where the package is used without being installed.
_ELSEWHERE = {"board": "libai.board", "models": "flowvision.models.listing", _CONFIG_PLAN: "libai.plan"}
_HELP = {
    "doctor": "check the installation, and say what to do about problems",
    "plan": "estimate time, memory and traffic of a program's jobs (script.py), or of a LiBai config (--config-file c.py)",
    "launch": "start one process per rank of a training script",
    "data": "make, convert, show and verify OFRecord and TFRecord data sets",
    "board": "serve a page that shows LiBai runs while they train",
    "models": "list the models of flowvision, such as '*resnet*'",
}
_EXAMPLES = """examples:
  oneflow doctor
  oneflow plan train.py --devices 8x128 --output plan.html
  oneflow launch --nproc_per_node 4 train.py
  oneflow models '*resnet*'

oneflow COMMAND --help describes a command. Next step: oneflow doctor
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The command line without the program's name; by default that of the process.

    Returns:
        The exit code: 0 for success, 1 for an error that was printed, 2 for a wrong command line.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--doctor"]:  # the older spelling
        words[0] = "doctor"
    if not words or words[0].startswith("-"):
        return _without_command(words)
    name, arguments = words[0], words[1:]
    if name == "plan" and _names_config(arguments):
        name = _CONFIG_PLAN
    try:
        run = _command(name)
        return int(run(arguments) or 0)
    except _UnknownCommand as error:
        print(f"oneflow: {error}", file=sys.stderr)
        return 2
    except MissingPackageError as error:
        print(f"error: {error.reason}", file=sys.stderr)
        return 1
    except OneFlowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


class _UnknownCommand(Exception):
    """A command that is not there; the message says what to do."""


def _names_config(arguments: list[str]) -> bool:
    """Whether ``plan`` is given a config instead of a script; what follows ``--`` belongs to the script."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return any(word.partition("=")[0] == "--config-file" for word in arguments[:end])


def _without_command(words: list[str]) -> int:
    parser = _parser()
    parser.parse_args(words)
    parser.print_help()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="oneflow",
        usage="oneflow COMMAND [arguments]",
        description="OneFlow's API on PyTorch.\n\ncommands:\n" + "\n".join(_command_lines()),
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--doctor", action="store_true", help="same as the command doctor")
    return parser


def _command_lines() -> list[str]:
    """One line per command: those with a help text first, then those that other distributions add."""
    added = {name: f"added by {_provider(entry)}" for name, entry in sorted(_entry_points().items())}
    lines = {name: {**added, **_HELP}[name] for name in _names()}
    width = max(map(len, lines))
    return [f"  {name:{width}}  {text}" for name, text in lines.items()]


def _names() -> list[str]:
    return [*_HELP, *sorted(set(_entry_points()) - {*_HELP, _CONFIG_PLAN})]


def _provider(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "another package"


def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}


def _command(name: str) -> Callable[[Sequence[str]], int | None]:
    if name in _OWN:
        return EntryPoint(name, _OWN[name], GROUP).load()
    entry = _entry_points().get(name)
    if entry is not None:
        return entry.load()
    if name in _ELSEWHERE:
        raise _UnknownCommand(
            f"the command {name!r} belongs to a package that is not installed here, or was installed by an older "
            f"version. Run pip install again, or python -m {_ELSEWHERE[name]}"
        )
    raise _UnknownCommand(
        f"there is no command {name!r}; there are {', '.join(_names())}.{nearest(name, _names())} "
        f"oneflow --help describes them"
    )
