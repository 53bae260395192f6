"""What is loaded when: ``import oneflow`` loads names and values, the first job the compiler, the first of several
ranks the SBP rules."""

from __future__ import annotations

import json
import subprocess
import sys

IMPORT = """
import json, sys
import oneflow as flow
"""
JOB = """
import numpy as np

@flow.global_function(type="train")
def train(x: flow.typing.Numpy.Placeholder((2, 3))) -> flow.typing.Numpy:
    loss = flow.matmul(x, flow.get_variable("w", (3, 2), initializer=flow.ones_initializer()))
    flow.optimizer.SGD(flow.optimizer.ConstantScheduler(0.1), momentum=0).minimize(loss)
    return loss

assert (train(np.ones((2, 3), np.float32)) == 3).all()
"""
TELL = """
print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(program: str) -> list[str]:
    """The modules that a fresh interpreter has loaded at the end of a program."""
    run = subprocess.run(
        [sys.executable, "-c", program + TELL], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(run.stdout)


def test_importing_oneflow_loads_no_compiler_and_no_workers() -> None:
    """The first job loads them. What is loaded sooner makes every program start later, also one that only reads
    records."""
    loaded = [name for name in loaded_by(IMPORT) if name.startswith("oneflow.")]
    late = [
        name
        for name in loaded
        if name.split(".")[1] in ("compiler", "collective")
        or name in ("oneflow.engine.runtime.driver.driver", "oneflow.engine.runtime.driver.worker")
    ]
    assert "oneflow.engine.job.session" in loaded and not late


def test_importing_oneflow_loads_no_package_that_a_job_may_never_need() -> None:
    """Each loads where it is first used: pictures that are no JPEG, exports, plans, TensorBoard, and torch's own
    compilers."""
    loaded = set(loaded_by(IMPORT))
    packages = {
        "PIL",
        "onnx",
        "onnxruntime",
        "tensorboard",
        "google.protobuf",
        "safetensors",
        "sympy",
        "torch._dynamo",
        "torch._inductor",
        "torch.onnx",
    }
    own = {"oneflow.engine.onnx.aten.table", "oneflow.engine.plan.report", "oneflow.engine.plan.make", "oneflow._C"}
    assert not (packages | own) & loaded


def test_torch_is_imported_with_the_garbage_collector_paused() -> None:
    program = """
import gc, json, sys
runs = []
gc.callbacks.append(lambda phase, info: runs.append("torch" in sys.modules and "torch.nn" not in sys.modules))
import oneflow, torch
assert gc.isenabled() and not gc.get_freeze_count() and not any(runs)
"""
    assert "torch" in loaded_by(program)


def test_what_a_program_froze_before_the_import_stays_frozen() -> None:
    program = """
import gc, json, sys
gc.freeze()
frozen = gc.get_freeze_count()
import oneflow
assert gc.isenabled() and gc.get_freeze_count() > frozen / 2
"""
    assert "torch" in loaded_by(program)


def test_a_job_on_one_device_loads_no_rules_of_several_ranks() -> None:
    """The rules look up hundreds of aten ops, which would make every first call later."""
    loaded = loaded_by(IMPORT + JOB)
    rules = {name for name in loaded if name.startswith("oneflow.engine.sharding.rules.")}
    several = {
        "oneflow.engine.assignment.infer",
        "oneflow.engine.assignment.mirror",
        "oneflow.engine.sharding.cost",
        "oneflow.engine.runtime.driver.driver",
    }
    assert "oneflow.engine.lowering.rank_program" in loaded
    assert rules == {"oneflow.engine.sharding.rules.rule"} and not several & set(loaded)
