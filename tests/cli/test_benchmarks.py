"""Benchmark programs run, with tiny sizes, and their tables have all their rows. Times are not looked at.

The five that start most processes, ``train_step.py``, ``graph_step.py``, ``libai_models.py``, ``scaling.py`` and
``cnns.py``, are left to ``make bench SIZE=small``, which CI runs after the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from warm_python import WARM

ROOT = Path(__file__).resolve().parents[2]
MS = r"\d+\.\d+ ms   \(\d+\.\d+ to \d+\.\d+\)"
S = r"\d+\.\d+ s"
RATIO = r"\d+\.\d\d"
RATES = rf"images/s \(\d+ to \d+\) +{RATIO} of the DataLoader, {RATIO} of the limit"

ROWS = {
    "dispatch.py": [
        rf"first call \(trace and compile\): {S}", r"y = x \* 2 \+ 1 on 4 floats, call to result: .* us \(.* to .*\)",
        rf"import torch {S}, import oneflow {S}, ratio {RATIO}",
    ],
    "input_pipeline.py": [
        r"8 JPEGs, .* KB each", rf"  DataLoader, 2 workers, Pillow .* {RATES}", rf"  Loader, without native code .* {RATES}",
        r"(?:  Loader, native .*|  limit: decode only, times two .*)", r"(?:  limit: decode only, times two .*|  the C extension is not built: .*)",
        r"records read and parsed: .* in a second of one core .*", r"memory over an epoch of 6,400 records: .*",
    ],
    "transforms.py": [
        r"a picture of 500 x 375 to 224 x 224", rf"  flowvision.transforms +{MS}", rf"  PIL and numpy +{MS}", rf"  ratio: {RATIO} of PIL and numpy",
    ],
    "updates.py": [
        *("updated", *[r"  \w.* ms by ops .* ms fused   ratio: \d+\.\d\d"] * 6), *("clipped, then updated", *[r"  \w.* ms by ops .* ms fused   ratio: \d+\.\d\d"] * 9),
    ],
    "plan.py": [
        r"GPT, 2 layers, 32 wide, 4 micro-batches, on 2 x 2 x 2 devices", rf"  model without data {S}, plan {S}, with its page {S}", r"  .* a rank at most, 80\.0 % of a step busy",
        r"alexnet, 16 pictures of 224 x 224, on 8 devices", *(rf"  {how} +{S}, {S} of processor time" for how in ("as a job", "as a graph", "with auto parallel")),
    ],
}  # fmt: skip
TIME = r"[\d.]+ [mu]s"
AGAINST = {"dispatch": "smallest job, call to result"}


def lines(program: str, *arguments: str) -> list[str]:
    """The lines that a benchmark prints behind the first one, which tells the machine."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [*WARM.command(), str(ROOT / "benchmarks" / program), *arguments, "--small"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    machine, *rest = done.stdout.splitlines()
    assert re.fullmatch(r".*, 1 threads, torch .*, Python .*", machine)
    return [line for line in rest if line]


def assert_rows(found: list[str], expected: list[str]) -> None:
    assert len(found) == len(expected), "\n".join(found)
    for line, row in zip(found, expected):
        assert re.fullmatch(row, line), f"{line!r} is not {row!r}"


@pytest.mark.parametrize("program", ROWS)
def test_a_benchmark_prints_all_its_rows(program: str) -> None:
    assert_rows(lines(program), ROWS[program])


def worktrees() -> set[str]:
    """The folders of the repository's worktrees; skips where the tests do not run in a clone."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "worktree", "list", "--porcelain"], capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("the tests do not run in a git clone")
    return {line for line in listed.stdout.splitlines() if line.startswith("worktree ")}


def test_a_commit_is_measured_against_the_working_tree_and_leaves_nothing() -> None:
    before = worktrees()
    head, *rows = lines("against.py", "HEAD", "--only", *AGAINST)
    assert re.fullmatch(r"  old: HEAD +old +new +old/new +\(of 1 rounds\)", head)
    assert_rows(
        rows, [rf"  {re.escape(title)} +{TIME} +{TIME} +{RATIO} +\({RATIO} to {RATIO}\)" for title in AGAINST.values()]
    )
    assert worktrees() <= before


def test_a_commit_that_does_not_exist() -> None:
    worktrees()
    command = [*WARM.command(), str(ROOT / "benchmarks" / "against.py"), "no-such-commit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "git cannot check out 'no-such-commit', name a commit of this repository: " in done.stderr
