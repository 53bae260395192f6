"""Runs random programs and prints those that fail.

    python tests/soak/run.py graphs --seeds 0 1000 --ranks 2 --seconds 600
    python tests/soak/run.py jobs --seeds 0 1000 --seconds 600
    python tests/soak/run.py graphs --ranks 2 --reduce 427

One launch runs many programs. A launch that ends or hangs is started again behind the program that it failed in.
Prints one line per failing program with the command that repeats it, and a summary; exits with 1 if there are any.
``--reduce`` drops layers and settings of one program while it still fails, and prints what is left.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SILENCE = 180.0
"""Seconds without a line after which a launch counts as hanging."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="run.py", description="Runs random programs and prints those that fail.")
    add = parser.add_argument
    add(
        "kind",
        choices=["graphs", "jobs"],
        help="graphs on ranks against eager torch, or jobs on 2 and 4 devices against 1",
    )
    add(
        "--seeds", type=int, nargs=2, default=(0, 1 << 30), metavar=("LOW", "HIGH"), help="the programs LOW to HIGH - 1"
    )
    add("--seconds", type=float, default=1e9, help="the time after which no program is begun")
    add("--ranks", type=int, default=2, help="the number of ranks of graphs")
    add("--without", default="", metavar="LAYER,LAYER", help="layers that are not drawn")
    add("--reduce", type=int, metavar="SEED", help="print the smallest program that fails as this one does")
    add("--program", metavar="JSON", help="run this program alone, as --reduce prints it")
    add("--log", type=Path, help="append a JSON line for every program to this file")
    return parser.parse_args(argv)


def command(kind: str, ranks: int, order: dict[str, Any]) -> list[str]:
    """Returns the command of one launch."""
    if kind == "jobs":
        return [sys.executable, str(HERE / "job_run.py"), json.dumps(order)]
    launch = ["-m", "oneflow.distributed.launch", "--nproc_per_node", str(ranks), "--master_port", str(_free_port())]
    return [sys.executable, *launch, str(HERE / "graph_rank.py"), json.dumps(order)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def lines(kind: str, ranks: int, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Runs one launch and yields what it prints; ends it where it hangs. A line ``{"ended": reason}`` comes last."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "ONEFLOW_STEP_TIMEOUT": "60"}
    with subprocess.Popen(
        command(kind, ranks, order), stdout=subprocess.PIPE, text=True, env=variables, start_new_session=True
    ) as process:
        received: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(process, received))
        reader.start()
        try:
            while (line := received.get(timeout=SILENCE)) is not None:
                if line.startswith("{"):
                    yield json.loads(line)
            yield {"ended": f"the launch ended with code {process.wait()}"}
        except queue.Empty:
            yield {"ended": f"the launch printed nothing for {SILENCE:.0f} s"}
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            reader.join()


def _read(process: subprocess.Popen[str], received: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        received.put(line)
    received.put(None)


def results(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields what each program has given; launches as often as needed."""
    ranges, end = [tuple(args.seeds)], time.monotonic() + args.seconds
    while ranges and time.monotonic() < end:
        low, high = ranges.pop(0)
        order = {"seeds": [low, high], "seconds": end - time.monotonic(), "without": _names(args.without)}
        begun, program, ended = None, None, ""
        for line in lines(args.kind, args.ranks, order):
            if "begun" in line:
                begun, program = line["begun"], line.get("program")
            elif "seed" in line:
                begun, low = None, line["seed"] + 1
                yield line
            else:
                ended = line["ended"]
        if begun is not None:
            yield {"seed": begun, "status": "error", "detail": ended, "program": program}
            ranges = [(low, begun), (begun + 1, high), *ranges]
            ranges = [(first, last) for first, last in ranges if first < last]


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def describe(args: argparse.Namespace, result: dict[str, Any]) -> str:
    """Returns the line of a failing program."""
    repeat = f"python tests/soak/run.py {args.kind} --seeds {result['seed']} {result['seed'] + 1}"
    if args.kind == "graphs":
        repeat += f" --ranks {args.ranks}"
    if args.without:
        repeat += f" --without {args.without}"
    amount = f" by {result['difference']:.1e} (allowed {result['tolerance']:.1e})" if result.get("difference") else ""
    detail = " ".join(result["detail"].split())
    return f"seed {result['seed']}: {result['status']}{amount}: {detail}\n    {repeat}"


def soak(args: argparse.Namespace) -> int:
    """Runs all programs; returns the exit code."""
    begin, counts = time.monotonic(), Counter[str]()
    for result in results(args):
        counts[result["status"]] += 1
        if args.log is not None:
            with args.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(result) + "\n")
        if result["status"] in ("different", "error"):
            print(describe(args, result), flush=True)
    where = f" on {args.ranks} ranks" if args.kind == "graphs" else ""
    found = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    print(f"{sum(counts.values())} {args.kind}{where} in {time.monotonic() - begin:.0f} s: {found or 'none'}")
    return 1 if counts["different"] or counts["error"] else 0


def single(args: argparse.Namespace) -> int:
    """Runs or reduces one program and prints it."""
    order = {"program": args.program, "seed": args.reduce, "reduces": args.reduce is not None, "crashes": False}
    order["without"] = _names(args.without)
    while True:
        begun, ended = None, ""
        for line in lines(args.kind, args.ranks, order):
            if "seed" in line:
                return _show(args, line)
            begun, ended = line.get("program", begun), line.get("ended", ended)
        if begun is None or not order["reduces"]:
            print(ended)
            return 1
        order |= {"program": begun, "crashes": True}  # goes on with the program that the launch ended in


def _show(args: argparse.Namespace, result: dict[str, Any]) -> int:
    print(describe(args, result))
    for name, value in json.loads(result["program"]).items():
        print(f"    {name}: {value}")
    ranks = f" --ranks {args.ranks}" if args.kind == "graphs" else ""
    print(f"    python tests/soak/run.py {args.kind}{ranks} --program '{result['program']}'")
    return 1 if result["status"] in ("different", "error") else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line."""
    args = arguments(argv)
    return soak(args) if args.reduce is None and args.program is None else single(args)


if __name__ == "__main__":
    sys.exit(main())
