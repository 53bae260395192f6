"""Checkpoints of programs that stop: resuming bit for bit, and surviving a kill at any moment."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checkpoint_jobs import files, two_variables

import oneflow as flow
from oneflow.engine.core.errors import OneFlowError

SRC = str(Path(flow.__file__).parents[1])


def run_python(script: Path, *args: str) -> str:
    """The output of a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(script), *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": SRC},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ------------------------------------------------------------------------------------------------------- resuming


PROGRAM = '''
"""Trains a small net with everything that has state; resumes from a checkpoint when told to."""
import sys

import numpy as np

import oneflow as flow

KINDS = {
    "momentum": lambda s: flow.optimizer.SGDW(s, weight_decay=0.01),
    "adam": lambda s: flow.optimizer.Adam(s, do_bias_correction=True),
    "lamb": lambda s: flow.optimizer.LAMB(s),
    "rmsprop": lambda s: flow.optimizer.RMSProp(s, centered=True),
    "scaled": lambda s: flow.optimizer.SGD(s, loss_scale_policy=flow.optimizer.loss_scale.dynamic_loss_scale(2.0**10, 2)),
}


def batch(step):
    rng = np.random.default_rng(step)
    return rng.normal(size=(8, 1, 6, 6)).astype(np.float32), rng.integers(0, 3, 8, np.int32)


def train(kind, first, last, load=None, save=None, middle=None):
    """Steps ``first`` to ``last``; ``middle`` is (step, folder): saved there before that step."""
    flow.clear_default_session()

    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef((8, 1, 6, 6)), labels=flow.FixedTensorDef((8,), dtype=flow.int32)):
        normal = flow.random_normal_initializer(stddev=0.3)
        x = flow.layers.conv2d(x, 4, 3, padding="SAME", kernel_initializer=normal, name="conv")
        x = flow.nn.relu(flow.layers.batch_normalization(x, axis=1, name="bn"))
        x = flow.nn.dropout(flow.reshape(x, (8, -1)), rate=0.5)
        logits = flow.layers.dense(x, 3, kernel_initializer=normal, name="fc")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        schedule = flow.optimizer.CosineScheduler(0.05, 8, warmup=flow.optimizer.warmup.linear(3, 0.1))
        KINDS[kind](schedule).minimize(loss)
        return loss

    if load is not None:
        flow.train.CheckPoint().load(load)
    losses = []
    for step in range(first, last):
        if middle is not None and step == middle[0]:
            flow.train.CheckPoint().save(middle[1])
        losses.append(job(*batch(step)).get().tolist())
    if save is not None:
        flow.train.CheckPoint().save(save)
    return losses


if __name__ == "__main__":
    root = sys.argv[1]
    print([train(kind, 4, 7, f"{root}/{kind}-middle", f"{root}/{kind}-resumed") for kind in KINDS])
'''


@pytest.mark.slow
def test_training_resumed_in_another_process_equals_training_never_stopped(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    whole = [
        program.train(kind, 0, 7, None, f"{tmp_path}/{kind}-whole", (4, f"{tmp_path}/{kind}-middle"))
        for kind in program.KINDS
    ]
    resumed = json.loads(run_python(path, str(tmp_path)))
    assert resumed == [losses[4:] for losses in whole]
    for kind in program.KINDS:
        end = files(tmp_path / f"{kind}-whole")
        assert files(tmp_path / f"{kind}-resumed") == end
        assert files(tmp_path / f"{kind}-middle") != end


# --------------------------------------------------------------------------------------------- kills during a save


KILLER = '''
"""Saves checkpoints in child processes that die at every moment of a save, and reports what each left behind."""
import json
import os
import resource
import signal
import sys

import numpy as np

import oneflow as flow

root = sys.argv[1]


@flow.global_function()
def job():
    return [flow.get_variable(f"v{i}", (100,), initializer=flow.constant_initializer(float(i))) for i in range(3)]


def child(target, arrange):
    """How the child ended: the signal, or None when it lived through the save."""
    pid = os.fork()
    if pid == 0:
        try:
            arrange()
            flow.checkpoint.save(target)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def die_at(moment):
    """SIGKILL before the given file operation of the save, counted from 0."""
    seen = [0]

    def hook(event, args):
        if event == "open" or (event.startswith(("os.", "shutil.", "tempfile.")) and event != "os.kill"):
            if seen[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            seen[0] += 1

    return lambda: sys.addaudithook(hook)


def die_in_the_middle_of_a_file():
    """The kernel ends the process at byte 150 of the first file that has 400."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))


def look(target):
    """"absent", "empty", "whole" or "broken"."""
    if not os.path.exists(target):
        return "absent"
    if not os.listdir(target):
        return "empty"
    names = sorted(os.listdir(target))
    good = names == ["snapshot_done", "v0", "v1", "v2"] and all(
        np.fromfile(f"{target}/v{i}/out", "<f4").tolist() == [float(i)] * 100 for i in range(3)
    )
    return "whole" if good else "broken"


def scan(made_before):
    found, moment = [], 0
    while True:
        target = f"{root}/{'made' if made_before else 'new'}_{moment}/snapshot_x"
        os.makedirs(target if made_before else os.path.dirname(target))
        end = child(target, die_at(moment))
        found.append([end, look(target), len(os.listdir(os.path.dirname(target)))])
        if end is None:
            return found
        manager = flow.train.SimpleCheckPointManager(os.path.dirname(target), prefix="")
        whole = look(target) == "whole"
        assert manager.list_checkpoints() == (["snapshot_x"] if whole else []), manager.list_checkpoints()
        if not whole:
            flow.checkpoint.save(target)  # what the dead process left is not in the way
            assert look(target) == "whole" and manager.list_checkpoints() == ["snapshot_x"]
        moment += 1


flow.checkpoint.save(f"{root}/old")
half = f"{root}/half"
print(json.dumps({
    "new": scan(False),
    "made": scan(True),
    "half": [child(half, die_in_the_middle_of_a_file), look(half)],
    "old": look(f"{root}/old"),
}))
'''


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_the_old_state_or_the_whole_checkpoint(tmp_path):
    script = tmp_path / "killer.py"
    script.write_text(KILLER)
    (tmp_path / "root").mkdir()
    report = json.loads(run_python(script, str(tmp_path / "root")).splitlines()[-1])
    for kind, before in (("new", "absent"), ("made", "empty")):
        *killed, last = report[kind]
        assert last[:2] == [None, "whole"], "the last child lives through the save"
        assert len(killed) > 10 and all(end == 9 for end, _, _ in killed)
        assert {state for _, state, _ in killed} <= {before, "whole"}
        assert any(count > (kind == "made") and state == before for _, state, count in killed), (
            "no child died with files written"
        )
    assert report["half"][0] is not None and report["half"][1] == "absent"
    assert report["old"] == "whole"


def test_a_save_that_fails_leaves_nothing(tmp_path, monkeypatch):
    two_variables()
    flow.get_all_variables()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OneFlowError, match="cannot save a checkpoint to .*No space left"):
        flow.checkpoint.save(tmp_path / "saved")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_replaced_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OneFlowError, match="cannot save a checkpoint to '.'"):
        flow.save({"a": np.zeros(1, np.float32)}, ".")
