"""Checkpoints: the bytes on disk, resuming bit for bit, surviving a kill at any moment, and refusing what does not fit."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oneflow as flow
from oneflow.core.errors import OneFlowError

SRC = str(Path(flow.__file__).parents[1])


def run_python(script: Path, *args: str) -> str:
    """The output of a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(script), *args], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": SRC}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def variables() -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def two_variables(a_shape=(2, 3), b_dtype=flow.float32):
    """A job with variables "a" and "b"."""

    @flow.global_function()
    def job():
        a = flow.get_variable("a", a_shape, initializer=flow.random_normal_initializer())
        b = flow.get_variable("b", (4,), b_dtype, flow.constant_initializer(1, b_dtype), trainable=False)
        return a, b

    return job


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def saved(tmp_path) -> Path:
    """A checkpoint of "a" and "b", whose values then change in the running session."""
    two_variables()
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    flow.load_variables({"a": np.full((2, 3), 7, np.float32), "b": np.full(4, 8, np.float32)})
    return tmp_path / "saved"


def assert_nothing_loaded() -> None:
    now = variables()
    assert (now["a"] == 7).all() and (now["b"] == 8).all()


# -------------------------------------------------------------------------------------------------------- format


def test_the_files_of_a_checkpoint(tmp_path):
    two_variables()
    now = variables()
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    assert files(tmp_path / "saved") == {
        "a/out": now["a"].astype("<f4").tobytes(),
        "a/meta": b"shape {\n  dim: 2\n  dim: 3\n}\ndata_type: kFloat\n",
        "b/out": now["b"].astype("<f4").tobytes(),
        "b/meta": b"shape {\n  dim: 4\n}\ndata_type: kFloat\n",
        "snapshot_done": b"",
    }
    assert os.listdir(tmp_path) == ["saved"]


@pytest.mark.parametrize(
    "dtype, name, size",
    [
        ("float32", "kFloat", 4),
        ("float64", "kDouble", 8),
        ("float16", "kFloat16", 2),
        ("int8", "kInt8", 1),
        ("int32", "kInt32", 4),
        ("int64", "kInt64", 8),
        ("uint8", "kUInt8", 1),
        ("char", "kInt8", 1),
    ],
)
def test_every_dtype_goes_and_comes_back(tmp_path, dtype, name, size):
    dtype = getattr(flow, dtype)

    @flow.global_function()
    def job():
        return flow.get_variable("v", (3,), dtype, flow.constant_initializer(5, dtype), trainable=False)

    flow.checkpoint.save(tmp_path / "saved")
    assert (tmp_path / "saved/v/meta").read_text() == f"shape {{\n  dim: 3\n}}\ndata_type: {name}\n"
    assert len((tmp_path / "saved/v/out").read_bytes()) == 3 * size
    flow.load_variables({"v": np.zeros(3, dtype.numpy)})
    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert variables()["v"].tolist() == [5, 5, 5]


def test_filters_are_saved_in_row_major_order_however_they_lie_in_memory(tmp_path):
    filters = np.arange(2 * 3 * 3 * 3, dtype=np.float32).reshape(2, 3, 3, 3)

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1, 3, 5, 5))):
        return flow.nn.conv2d(x, flow.get_variable("f", filters.shape, initializer=flow.zeros_initializer()), 1, "SAME", data_format="NCHW")

    flow.load_variables({"f": filters})
    flow.checkpoint.save(tmp_path / "saved")
    assert (tmp_path / "saved/f/out").read_bytes() == filters.tobytes()
    flow.load_variables({"f": filters * 0})
    flow.load_variables(flow.checkpoint.get(tmp_path / "saved"))
    np.testing.assert_array_equal(variables()["f"], filters)


def test_a_train_job_saves_its_state_and_step(tmp_path):
    @flow.global_function(type="train")
    def train_job():
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(w)

    for _ in range(3):
        train_job()
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    assert sorted(os.listdir(tmp_path / "saved")) == ["System-Train-TrainStep-train_job", "snapshot_done", "w", "w-momentum"]
    assert (tmp_path / "saved/System-Train-TrainStep-train_job/out").read_bytes() == (3).to_bytes(8, "little")
    assert "kInt64" in (tmp_path / "saved/System-Train-TrainStep-train_job/meta").read_text()


def test_the_folders_of_lenet(tmp_path):
    """The names and sizes that the quick start's checkpoint has."""

    @flow.global_function()
    def job(images=flow.FixedTensorDef((2, 1, 28, 28))):
        make = flow.truncated_normal(0.1)
        x = flow.layers.conv2d(images, 32, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=make, name="conv1")
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", data_format="NCHW")
        x = flow.layers.conv2d(x, 64, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=make, name="conv2")
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", data_format="NCHW")
        x = flow.layers.dense(flow.reshape(x, (2, -1)), 512, activation=flow.nn.relu, kernel_initializer=make, name="dense1")
        return flow.layers.dense(x, 10, kernel_initializer=make, name="dense2")

    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    sizes = {name: len(data) for name, data in files(tmp_path / "saved").items() if name.endswith("out")}
    assert sizes == {
        "conv1-weight/out": 3200,
        "conv1-bias/out": 128,
        "conv2-weight/out": 204800,
        "conv2-bias/out": 256,
        "dense1-weight/out": 6422528,
        "dense1-bias/out": 2048,
        "dense2-weight/out": 20480,
        "dense2-bias/out": 40,
    }


# -------------------------------------------------------------------------------------------------- save and load


def test_load_brings_every_variable_back(saved):
    now = np.frombuffer((saved / "a/out").read_bytes(), "<f4").reshape(2, 3)
    flow.train.CheckPoint().load(str(saved))
    np.testing.assert_array_equal(variables()["a"], now)
    assert variables()["b"].tolist() == [1, 1, 1, 1]


def test_a_training_checkpoint_serves_a_program_that_only_predicts(tmp_path):
    def model():
        return flow.get_variable("w", (1,), initializer=flow.ones_initializer())

    @flow.global_function(type="train")
    def train():
        flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(model())

    train()
    trained = variables()["w"]
    flow.checkpoint.save(tmp_path / "saved")
    flow.clear_default_session()

    @flow.global_function()
    def predict():
        return flow.identity(model())

    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert predict().get() == trained


def test_a_model_without_optimizer_state_can_be_trained_on(tmp_path):
    def model():
        return flow.get_variable("w", (1,), initializer=flow.constant_initializer(5))

    @flow.global_function()
    def predict():
        return model()

    flow.checkpoint.save(tmp_path / "saved")
    flow.clear_default_session()

    @flow.global_function(type="train")
    def train():
        flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(model() * 1)

    train()
    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert variables()["w"] == 5


def test_checkpoints_without_meta(saved):
    for name in "ab":
        (saved / name / "meta").unlink()
    flow.train.CheckPoint().load(str(saved))
    assert variables()["b"].tolist() == [1, 1, 1, 1]
    value = flow.checkpoint.get(saved)["a"]
    for look in (lambda: value.numpy(), lambda: value.shape, lambda: value.dtype):
        with pytest.raises(AssertionError, match="has no meta file, so the shape of 'a' is not known"):
            look()


def test_saving_into_an_empty_folder_that_exists(tmp_path):
    two_variables()
    (tmp_path / "made").mkdir()
    flow.train.CheckPoint().save(str(tmp_path / "made"))
    assert (tmp_path / "made/snapshot_done").exists()


def test_saving_makes_parent_folders(tmp_path):
    two_variables()
    flow.train.CheckPoint().save(str(tmp_path / "deep/er/saved"))
    assert os.listdir(tmp_path / "deep/er") == ["saved"]


@pytest.mark.parametrize("path", ["saved", "saved/", "./saved"])
def test_saving_to_a_relative_path(tmp_path, monkeypatch, path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    two_variables()
    flow.train.CheckPoint().save(path)
    assert (tmp_path / "here" / path / "snapshot_done").exists()
    flow.train.CheckPoint().load(str(tmp_path / "here" / path))


def test_a_saved_folder_can_be_read_by_others(tmp_path):
    two_variables()
    before = os.umask(0o022)
    try:
        flow.checkpoint.save(tmp_path / "saved")
    finally:
        os.umask(before)
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "saved/a/out").stat().st_mode & 0o777 == 0o644


def test_get_reads_one_variable_or_all(saved):
    found = flow.checkpoint.get(str(saved))
    assert set(found) == {"a", "b"}
    assert (found["a"].shape, found["a"].dtype, found["a"].numpy().shape) == ((2, 3), flow.float32, (2, 3))
    one = flow.checkpoint.get(str(saved / "b"))
    assert one.numpy().tolist() == [1, 1, 1, 1]


def test_a_checkpoint_of_one_variable_is_still_a_dict(tmp_path):
    flow.checkpoint.save(tmp_path / "saved", {"only": np.ones(2, np.float32)})
    assert list(flow.checkpoint.get(tmp_path / "saved")) == ["only"]


def test_saving_given_values_needs_no_job(tmp_path):
    flow.checkpoint.save(tmp_path / "saved", {"x": np.arange(3, dtype=np.int32)})
    assert flow.checkpoint.get(tmp_path / "saved")["x"].numpy().tolist() == [0, 1, 2]
    assert (tmp_path / "saved/snapshot_done").exists()


def test_values_from_a_checkpoint_can_be_saved_again(saved, tmp_path):
    flow.checkpoint.save(tmp_path / "again", flow.checkpoint.get(saved))
    assert files(tmp_path / "again") == files(saved)


def test_variables_as_seen_by_programs():
    two_variables()
    found = flow.get_all_variables()
    assert (found["a"].shape, found["a"].dtype) == ((2, 3), flow.float32)
    copy = found["a"].numpy()
    copy[:] = 50
    assert not (found["a"].numpy() == 50).any()
    flow.load_variables({"a": np.zeros((2, 3), np.float32)})
    assert (found["a"].numpy() == 0).all()


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


def test_training_resumed_in_another_process_equals_training_never_stopped(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    whole = [program.train(kind, 0, 7, None, f"{tmp_path}/{kind}-whole", (4, f"{tmp_path}/{kind}-middle")) for kind in program.KINDS]
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
        assert any(count > (kind == "made") and state == before for _, state, count in killed), "no child died with files written"
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


# -------------------------------------------------------------------------------------------- what is not possible


def test_saving_over_a_checkpoint(saved):
    before = files(saved)
    with pytest.raises(AssertionError, match="is a folder with files in it; remove it or choose another path") as caught:
        flow.train.CheckPoint().save(str(saved))
    assert str(saved) in str(caught.value)
    assert files(saved) == before and os.listdir(saved.parent) == ["saved"]


def test_saving_over_a_file(tmp_path):
    two_variables()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(AssertionError, match="it is a file"):
        flow.checkpoint.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_saving_over_a_link_to_nowhere(tmp_path):
    two_variables()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(AssertionError, match="cannot save a checkpoint"):
        flow.checkpoint.save(tmp_path / "link")


@pytest.mark.parametrize("path", ["", None, 3])
@pytest.mark.parametrize("method", ["save", "load"])
def test_paths_that_are_none(method, path):
    two_variables()
    with pytest.raises(AssertionError, match="path is a string"):
        getattr(flow.train.CheckPoint(), method)(path)


@pytest.mark.parametrize("name", ["a/b", "..", "", "snapshot_done"])
def test_names_that_cannot_be_folders(tmp_path, name):
    with pytest.raises(AssertionError, match="cannot name a folder"):
        flow.checkpoint.save(tmp_path / "saved", {name: np.zeros(1, np.float32)})
    assert os.listdir(tmp_path) == []


def test_values_that_cannot_be_saved(tmp_path):
    with pytest.raises(AssertionError, match="variable 'x' .*got int"):
        flow.checkpoint.save(tmp_path / "saved", {"x": 3})
    with pytest.raises(NotImplementedError, match="complex"):
        flow.checkpoint.save(tmp_path / "saved", {"x": np.zeros(2, np.complex64)})
    assert os.listdir(tmp_path) == []


def test_loading_what_is_not_there(tmp_path):
    two_variables()
    with pytest.raises(AssertionError, match="is not a folder"):
        flow.train.CheckPoint().load(str(tmp_path / "nothing"))
    with pytest.raises(AssertionError, match="is not a folder"):
        flow.checkpoint.get(str(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(AssertionError, match="holds no variables"):
        flow.train.CheckPoint().load(str(tmp_path / "empty"))


def test_a_missing_variable(saved):
    for file in ("out", "meta"):
        (saved / "b" / file).unlink()
    (saved / "b").rmdir()
    with pytest.raises(AssertionError, match=r"has no variable 'b', a job needs it as float32\(4\) \(1 missing; it holds a\)") as caught:
        flow.train.CheckPoint().load(str(saved))
    assert str(caught.value).startswith(f"{__file__}:")
    assert_nothing_loaded()
    flow.load_variables(flow.checkpoint.get(saved))
    assert not (variables()["a"] == 7).any() and (variables()["b"] == 8).all()


@pytest.mark.parametrize("without_meta", [False, True])
@pytest.mark.parametrize("size", [0, 12, 15, 17, 32])
def test_a_file_of_the_wrong_size(saved, size, without_meta):
    (saved / "b/out").write_bytes(b"\0" * size)
    if without_meta:
        (saved / "b/meta").unlink()
    message = rf"unexpected model snapshot size: .*b/out' has {size} bytes, variable 'b' float32\(4\) needs 16"
    for load in (flow.train.CheckPoint().load, lambda path: flow.load_variables(flow.checkpoint.get(path))):
        with pytest.raises(AssertionError, match=message):
            load(str(saved))
    assert_nothing_loaded()


@pytest.mark.parametrize(
    "meta, found",
    [
        ("shape {\n  dim: 2\n  dim: 2\n}\ndata_type: kFloat\n", r"float32\(2, 2\)"),
        ("shape {\n  dim: 2\n}\ndata_type: kDouble\n", r"float64\(2\)"),
        ("shape {\n  dim: 4\n}\ndata_type: kInt32\n", r"int32\(4\)"),
    ],
)
def test_a_variable_of_another_shape_or_dtype(saved, meta, found):
    (saved / "b/meta").write_text(meta)
    with pytest.raises(AssertionError, match=rf"variable 'b' is float32\(4\), checkpoint '.*' holds {found}"):
        flow.train.CheckPoint().load(str(saved))
    assert_nothing_loaded()


@pytest.mark.parametrize("meta", ["", "shape {", "shape { dim: x }\ndata_type: kFloat", "shape { dim: 4 }\ndata_type: kFlaot\n", "\xff"])
def test_a_meta_file_that_cannot_be_read(saved, meta):
    (saved / "b/meta").write_text(meta, encoding="latin1")
    with pytest.raises(AssertionError, match="b/meta' is not a checkpoint's meta file"):
        flow.train.CheckPoint().load(str(saved))
    assert_nothing_loaded()


@pytest.mark.parametrize("meta", ["shape { dim: 4 } data_type: kFloat", "shape {\n dim: 4\n}\n\ndata_type:kFloat\n\n"])
def test_a_meta_file_in_other_spacing(saved, meta):
    (saved / "b/meta").write_text(meta)
    flow.train.CheckPoint().load(str(saved))
    assert variables()["b"].tolist() == [1, 1, 1, 1]


def test_folders_that_no_job_knows_are_ignored(saved):
    (saved / "other").mkdir()
    (saved / "other/out").write_bytes(b"1")
    (saved / "notes.txt").write_text("mine")
    flow.train.CheckPoint().load(str(saved))
    assert variables()["b"].tolist() == [1, 1, 1, 1]


# ------------------------------------------------------------------------------------------------- load_variables


def test_values_of_every_kind(saved):
    flow.load_variables({"a": np.ones((2, 3), np.float32), "b": flow.checkpoint.get(saved)["b"]})
    assert (variables()["a"] == 1).all() and (variables()["b"] == 1).all()
    flow.load_variables({"b": np.zeros(4, np.float32)})
    flow.load_variables({"b": flow.get_all_variables()["b"], "a": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))})
    assert variables()["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and (variables()["b"] == 0).all()


def test_a_value_keeps_no_tie_to_the_array_it_came_from(saved):
    source = np.ones((2, 3), np.float32)
    flow.load_variables({"a": source})
    source[:] = 2
    assert (variables()["a"] == 1).all()


def test_unknown_names(saved):
    flow.load_variables({"x": np.zeros(1, np.float32), "b": np.full(4, 3, np.float32)})
    assert (variables()["b"] == 3).all()
    with pytest.raises(RuntimeError, match=r"no job has a variable 'x' \(1 unknown names\)") as caught:
        flow.load_variables({"b": np.zeros(4, np.float32), "x": np.zeros(1, np.float32)}, ignore_mismatch=False)
    assert isinstance(caught.value, OneFlowError) and str(caught.value).startswith(f"{__file__}:")
    assert (variables()["b"] == 3).all()


@pytest.mark.parametrize(
    "value, pattern",
    [
        (np.zeros(5, np.float32), r"variable 'b' is float32\(4\), it cannot be set from float32\(5\)"),
        (np.zeros((4, 1), np.float32), r"cannot be set from float32\(4, 1\)"),
        (np.zeros(4, np.float64), r"cannot be set from float64\(4\)"),
        (np.zeros(4, np.int32), r"cannot be set from int32\(4\)"),
        ([1.0, 1.0, 1.0, 1.0], "variable 'b' takes an array or a saved value, got list"),
    ],
)
def test_values_that_do_not_fit(saved, value, pattern):
    with pytest.raises(AssertionError, match=pattern):
        flow.load_variables({"a": np.zeros((2, 3), np.float32), "b": value})
    assert_nothing_loaded()


def test_what_is_loaded_is_what_the_next_step_uses(saved):
    flow.clear_default_session()
    job = two_variables()
    job()
    flow.load_variables({"b": np.full(4, 5, np.float32)})
    assert job().get()[1].tolist() == [5, 5, 5, 5]


# ----------------------------------------------------------------------------------------- a folder of snapshots


def test_a_manager_saves_lists_and_restores(tmp_path):
    two_variables()
    manager = flow.train.SimpleCheckPointManager(str(tmp_path / "root"))
    assert manager.list_checkpoints() == [] and manager.latest_checkpoint() is None
    manager.initialize_or_restore()
    (first,) = manager.list_checkpoints()
    assert re.fullmatch(r"snapshot_\d{8}_\d{6}_\d{6}", first)
    flow.load_variables({"b": np.full(4, 5, np.float32)})
    manager.save()
    assert manager.list_checkpoints() == sorted(os.listdir(tmp_path / "root")) and len(manager.list_checkpoints()) == 2
    assert manager.latest_checkpoint() == manager.list_checkpoints()[-1] != first
    flow.load_variables({"b": np.full(4, 9, np.float32)})
    manager.initialize_or_restore()
    assert (variables()["b"] == 5).all()


def test_a_manager_passes_over_what_is_not_complete(tmp_path):
    two_variables()
    manager = flow.train.SimpleCheckPointManager(str(tmp_path), prefix="model_")
    manager.save()
    (whole,) = manager.list_checkpoints()
    (tmp_path / "model_99999999").mkdir()
    (tmp_path / "other_1").mkdir()
    (tmp_path / "other_1/snapshot_done").touch()
    (tmp_path / "model_file").touch()
    assert manager.list_checkpoints() == [whole]
    assert manager.latest_checkpoint() == whole


def test_flow_save_and_load_need_no_job(tmp_path):
    flow.save({"a": np.arange(6, dtype=np.float32).reshape(2, 3)}, str(tmp_path / "x"))
    found = flow.load(str(tmp_path / "x"))
    np.testing.assert_array_equal(found["a"].numpy(), np.arange(6, dtype=np.float32).reshape(2, 3))


def test_a_folder_that_cannot_be_replaced_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OneFlowError, match="cannot save a checkpoint to '.'"):
        flow.save({"a": np.zeros(1, np.float32)}, ".")
