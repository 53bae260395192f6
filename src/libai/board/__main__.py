"""``python -m libai.board output/ [another/ ...]``"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from libai.board.server import LOOPBACK, serve
from oneflow.engine.core.errors import ArgumentError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m libai.board",
        description="A page that shows runs while they train: losses, rates, speed, memory, evaluation, config, plan.",
    )
    parser.add_argument(
        "folders", nargs="*", default=["output"], help="output folders of runs, or folders of them (default: output)"
    )
    parser.add_argument(
        "--host",
        default=LOOPBACK,
        help="the address to listen on; 0.0.0.0 shows the runs to everybody who can reach this machine (default: loopback alone)",
    )
    parser.add_argument("--port", type=int, default=6007, help="the port; 0 is any that is free (default: 6007)")
    given = parser.parse_args(arguments)
    for folder in given.folders:
        if not os.path.isdir(folder):
            print(
                f"libai.board: {folder} is no folder; give the output_dir of a run, or a folder of them",
                file=sys.stderr,
            )
            return 2
    try:
        server = serve(given.folders, given.host, given.port)
    except ArgumentError as error:
        print(f"libai.board: {error.reason}", file=sys.stderr)
        return 2
    with server:
        print(f"http://{given.host}:{server.server_port}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
