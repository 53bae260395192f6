"""``python -m oneflow``: says what is installed, and plans jobs."""

from __future__ import annotations

import argparse
import sys

from oneflow.version import __version__


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["plan"]:
        from oneflow.engine.plan.cli import main as plan

        return plan(argv[1:])
    parser = argparse.ArgumentParser(
        prog="python -m oneflow",
        description="OneFlow's job functions on PyTorch.",
        epilog="python -m oneflow plan script.py: what the jobs of a program would cost; plan --help says more",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument(
        "--doctor", action="store_true", help="print versions, devices, threads, backends and data files"
    )
    args = parser.parse_args(argv)
    if not args.doctor:
        parser.print_help()
        return 0
    from oneflow.doctor import report

    print(report())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
