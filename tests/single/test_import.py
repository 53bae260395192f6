"""What ``import oneflow`` loads: names and values, not the compiler."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import oneflow
print(json.dumps(sorted(name for name in sys.modules if name.startswith("oneflow."))))
"""


def test_importing_oneflow_loads_no_compiler_and_no_workers() -> None:
    """The first job loads them. What is loaded sooner makes every program start later, also one that only reads records."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    loaded: list[str] = json.loads(run.stdout)
    late = [name for name in loaded if name.split(".")[1] in ("compiler", "collective") or name in ("oneflow.runtime.driver", "oneflow.runtime.worker")]
    assert "oneflow.job.session" in loaded and not late
