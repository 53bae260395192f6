"""Checkpoints: the bytes on disk, saving and loading, a folder of snapshots."""

import fcntl
import os
import re
import tempfile
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
from checkpoint_jobs import files, two_variables, variables

import oneflow as flow

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
    flow.load_variables({"v": torch.zeros(3, dtype=dtype).numpy()})
    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert variables()["v"].tolist() == [5, 5, 5]


def test_filters_are_saved_in_row_major_order_however_they_lie_in_memory(tmp_path):
    filters = np.arange(2 * 3 * 3 * 3, dtype=np.float32).reshape(2, 3, 3, 3)

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1, 3, 5, 5))):
        return flow.nn.conv2d(
            x,
            flow.get_variable("f", filters.shape, initializer=flow.zeros_initializer()),
            1,
            "SAME",
            data_format="NCHW",
        )

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
    assert sorted(os.listdir(tmp_path / "saved")) == [
        "System-Train-TrainStep-train_job",
        "snapshot_done",
        "w",
        "w-momentum",
    ]
    assert (tmp_path / "saved/System-Train-TrainStep-train_job/out").read_bytes() == (3).to_bytes(8, "little")
    assert "kInt64" in (tmp_path / "saved/System-Train-TrainStep-train_job/meta").read_text()


def test_the_folders_of_lenet(tmp_path):
    """The names and sizes that the quick start's checkpoint has."""

    @flow.global_function()
    def job(images=flow.FixedTensorDef((2, 1, 28, 28))):
        make = flow.truncated_normal(0.1)
        x = flow.layers.conv2d(
            images, 32, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=make, name="conv1"
        )
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", data_format="NCHW")
        x = flow.layers.conv2d(x, 64, 5, padding="SAME", activation=flow.nn.relu, kernel_initializer=make, name="conv2")
        x = flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", data_format="NCHW")
        x = flow.layers.dense(
            flow.reshape(x, (2, -1)), 512, activation=flow.nn.relu, kernel_initializer=make, name="dense1"
        )
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


def test_what_killed_saves_left_is_removed_by_the_next_of_that_name(tmp_path):
    left, other, held = (tmp_path / name for name in (".model.x1.tmp", ".model.2.x1.tmp", ".model.y2.tmp"))
    for folder in (left, other, held):
        folder.mkdir()
        (folder / "out").write_bytes(b"half")
    handle = os.open(held, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    flow.checkpoint.save(str(tmp_path / "model"), {"w": np.ones(2, np.float32)})
    os.close(handle)
    assert not left.exists() and other.exists() and held.exists()  # another target's, and one that is being written
    assert flow.checkpoint.get(str(tmp_path / "model"))["w"].numpy().tolist() == [1, 1]


def test_a_save_whose_new_folder_was_taken_for_an_old_one_makes_another(tmp_path, monkeypatch):
    """Between making the folder and locking it, another save of that name may find it, and removes what nobody has
    locked."""
    made = []

    def taken_at_first(**names):
        made.append(mkdtemp(**names))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", taken_at_first)
    flow.checkpoint.save(str(tmp_path / "model"), {"w": np.ones(2, np.float32)})
    assert len(made) == 2 and os.listdir(tmp_path) == ["model"]


def test_init_before_any_job_of_eager_execution():
    flow.enable_eager_execution(True)
    flow.train.CheckPoint().init()
