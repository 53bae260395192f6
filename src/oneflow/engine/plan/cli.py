"""``python -m oneflow plan script.py``: the plans of a program's jobs, from the program as it stands.

The program runs up to its first call of a job, or first use of a checkpoint; there its jobs are traced and it is ended.
What it prints goes to stderr. 0: done. 1: it could not be done. 2: the command line itself is wrong.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from oneflow.engine.core.errors import ArgumentError, OneFlowError, nearest
from oneflow.engine.job.function import default_session
from oneflow.engine.job.session import Session
from oneflow.engine.plan import plan_job
from oneflow.engine.plan.devices import device_axes
from oneflow.engine.plan.report import Plan, checked_ending, save_plans


def main(argv: Sequence[str]) -> int:
    """Runs the command; what stands behind ``--`` is the script's."""
    cut = argv.index("--") if "--" in argv else len(argv)
    parser = _parser()
    args = parser.parse_args(argv[:cut])
    if not args.script.is_file():
        parser.error(f"{args.script} is no file; name the program whose jobs are to be planned")
    try:
        if args.output is not None:
            checked_ending(args.output)
        _show(_plans(args, argv[cut + 1 :]), args)
    except OneFlowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output, such as head, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m oneflow plan",
        usage="%(prog)s script.py [--job NAME] [--devices 8x128] [--output plan.html | --json] [-- arguments of the script]",
        description="Runs a program up to its first call of a job and prints what its jobs would cost, without running them.",
    )
    parser.add_argument("script", type=Path, help="the program; it finds its arguments in sys.argv as ever")
    parser.add_argument("--job", metavar="NAME", help="plan this job only")
    parser.add_argument("--devices", type=_axes, metavar="AXES", help="plan for so many devices, such as 1024 or 8x128")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--output", metavar="FILE", help="write the plans to one .html, .txt or .json file instead of printing them"
    )
    form.add_argument("--json", action="store_true", help="print JSON, one line per job")
    return parser


def _axes(text: str) -> tuple[int, ...]:
    try:
        return device_axes(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(error.reason) from None


def _plans(args: argparse.Namespace, script_args: Sequence[str]) -> list[Plan]:
    session = _defined_by(args.script, script_args, lambda session: _announce(session, args))
    try:
        names = _chosen(session, args)
        with redirect_stdout(sys.stderr):  # bodies of jobs that are traced only now may print
            return [plan_job(session.jobs[name], args.devices) for name in names]
    finally:
        session.close()


def _announce(session: Session, args: argparse.Namespace) -> None:
    """Says what one file will hold, before jobs are traced, which may take its time."""
    names = list(session.jobs)
    if args.job is None and args.output is not None and len(names) > 1:
        print(
            f"{args.output} will have the plans of {len(names)} jobs, --job chooses one: {', '.join(names)}",
            file=sys.stderr,
            flush=True,
        )


def _chosen(session: Session, args: argparse.Namespace) -> list[str]:
    names = list(session.jobs)
    if not names:
        raise ArgumentError(
            f"{args.script} ended without defining a job; decorate a function with @flow.global_function"
        )
    if args.job is not None and args.job not in names:
        raise ArgumentError(
            f"{args.script} has no job {args.job!r}, it has {', '.join(names)}.{nearest(args.job, names)}"
        )
    return names if args.job is None else [args.job]


def _show(plans: Sequence[Plan], args: argparse.Namespace) -> None:
    if args.output is not None:
        save_plans(plans, args.output)
        print(f"{'the plan is' if len(plans) == 1 else f'{len(plans)} plans are'} in {args.output}", file=sys.stderr)
        return
    print("\n".join(plan.to_json() for plan in plans) if args.json else "\n\n\n".join(map(str, plans)))
    sys.stdout.flush()


# ------------------------------------------------------------------ the program


class _FirstCall(BaseException):
    """The program has come to its first call of a job. No Exception, so that the program does not take it for one of
    its own."""


def _defined_by(script: Path, arguments: Sequence[str], defined: Callable[[Session], None]) -> Session:
    """The session with the jobs that a program defines before it first calls one; all are traced if it came so far.
    ``defined`` is called before that."""
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            defined(default_session())
        default_session().trace()
        stopped = True
        raise _FirstCall

    default_session().before_start = stop
    try:
        with redirect_stdout(sys.stderr), _as_program(script, arguments):
            runpy.run_path(str(script), run_name="__main__")
    except _FirstCall:
        pass
    except SystemExit as end:
        if end.code and not stopped:
            raise
    except Exception:
        if not stopped:  # else a program that cleans up behind a call that gave it no result
            raise
    finally:
        default_session().before_start = None
    if not stopped:
        defined(default_session())
    return default_session()


@contextmanager
def _as_program(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as ``python script.py`` sets them."""
    before = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *arguments], [str(script.resolve().parent), *sys.path]
    try:
        yield
    finally:
        sys.argv, sys.path = before
