"""A process that is killed at any moment of ``flow.save`` leaves the old directory or the new one."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

KILLER = """
import builtins, io, json, os, signal, sys, torch
import oneflow as flow
from oneflow.engine.checkpoint import writing

root, way = sys.argv[1:]
new = {"x": torch.zeros(1000), "y": torch.ones(3)}


def child(moment):
    pid = os.fork()
    if pid == 0:
        left = [moment]

        def counted(function):
            def call(*arguments):
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return function(*arguments)
            return call

        os.fsync, os.rename, os.open, os.mkdir = (counted(f) for f in (os.fsync, os.rename, os.open, os.mkdir))
        io.open = builtins.open = counted(open)
        writing.sync_file_system = counted(writing.sync_file_system) if way == "exchange" else lambda folder: False
        writing.exchange = counted(writing.exchange) if way == "exchange" else lambda one, other: False
        flow.save(new, f"{root}/saved")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def look(path):
    loaded = flow.load(path)
    return "new" if loaded["x"].sum() == 0 and len(loaded) == 2 else "old" if loaded["x"].sum() == 1000 else "half"


found, moment, end = [], 0, -9
while end:
    flow.save({"x": torch.ones(1000)}, f"{root}/saved")
    end = child(moment)
    aside = [name for name in os.listdir(root) if name.endswith(".old")]
    found.append([end, look(f"{root}/saved") if os.path.exists(f"{root}/saved") else "aside: " + look(f"{root}/{aside[0]}")])
    moment += 1
print(json.dumps(found))
"""


@pytest.mark.parametrize("way", ["exchange", "two renames"])
def test_a_process_that_is_killed_while_saving_leaves_the_old_or_the_new(way, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path), way], env=environment, capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    *killed, last = json.loads(run.stdout)
    assert last == [0, "new"] and len(killed) > 10 and all(end == -9 for end, _ in killed)
    states = [state for _, state in killed]
    allowed = ["old", "new"] if way == "exchange" else ["old", "aside: old", "new"]
    assert set(states) == set(allowed) and states == sorted(states, key=allowed.index)
