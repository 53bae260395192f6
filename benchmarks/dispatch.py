"""How long a call of the smallest job takes, from numpy to numpy, and how long ``import oneflow`` takes beside ``import
torch``.

``python benchmarks/dispatch.py [--rounds N] [--calls N] [--small]``
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

from jobs import affine_step
from measure import alternate, in_turn, machine, parse


def import_seconds(package: str) -> float:
    """The time of ``import package`` in a fresh interpreter, the start of the interpreter itself left out."""
    code = f"import time; t = time.perf_counter(); import {package}; print(time.perf_counter() - t)"
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }  # torch's byte code was written when it was installed
    return float(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment).stdout
    )


def report_imports(rounds: int) -> None:
    """Medians over fresh interpreters, who begins changes from round to round. A first round, which may write byte
    code, is not counted."""
    seconds: dict[str, list[float]] = {"torch": [], "oneflow": []}
    for turn in range(rounds + 1):
        for package, found in in_turn(seconds, turn):
            found.append(import_seconds(package))
    rival, ours = (statistics.median(found[1:]) for found in seconds.values())
    print(f"import torch {rival:.2f} s, import oneflow {ours:.2f} s, ratio {ours / rival:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=2000, help="calls a round")
    parser.add_argument("--imports", type=int, default=20, help="imports of each package")
    args = parse(parser, {"rounds": 1, "calls": 10, "imports": 1})
    print(machine())
    step = affine_step()
    start = time.perf_counter()
    step()
    print(f"\nfirst call (trace and compile): {time.perf_counter() - start:.2f} s")
    call = alternate({"job": step}, args.calls, args.rounds)[0]
    print(
        f"y = x * 2 + 1 on 4 floats, call to result: {1e6 * call.median:.1f} us ({1e6 * call.low:.1f} to "
        f"{1e6 * call.high:.1f})"
    )
    report_imports(args.imports)


if __name__ == "__main__":
    main()
