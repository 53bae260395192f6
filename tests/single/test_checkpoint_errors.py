"""Checkpoints and values that do not fit are refused, and nothing of them is loaded."""

import os

import numpy as np
import pytest
import torch
from checkpoint_jobs import files, two_variables, variables

import oneflow as flow
from oneflow.engine.core.errors import ArgumentError, CheckpointError, OneFlowError


def assert_nothing_loaded() -> None:
    now = variables()
    assert (now["a"] == 7).all() and (now["b"] == 8).all()


# -------------------------------------------------------------------------------------------- what is not possible


def test_saving_over_a_checkpoint(saved):
    before = files(saved)
    with pytest.raises(
        AssertionError, match="is a folder with files in it; remove it or choose another path"
    ) as caught:
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
    with pytest.raises(
        AssertionError, match=r"has no variable 'b', a job needs it as float32\(4\) \(1 missing; it holds a\)"
    ) as caught:
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


@pytest.mark.parametrize(
    "meta", ["", "shape {", "shape { dim: x }\ndata_type: kFloat", "shape { dim: 4 }\ndata_type: kFlaot\n", "\xff"]
)
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
    flow.load_variables(
        {"b": flow.get_all_variables()["b"], "a": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))}
    )
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


@pytest.mark.parametrize(
    "value, message",
    [
        (torch.ones(2).to_sparse(), r"the tensor is sparse; call .to_dense\(\)"),
        (torch.ones(2, device="meta"), "the tensor has no values, it lies on the device 'meta'"),
        (
            torch._nested_view_from_buffer(torch.ones(2), torch.tensor([[2]]), torch.tensor([[1]]), torch.tensor([0])),
            "the tensor is nested; give one of",
        ),
    ],
    ids=["sparse", "meta", "nested"],
)
@pytest.mark.parametrize("table", [None, {"w": ("w", (0,))}], ids=["as it is", "turned"])
def test_tensors_that_are_no_weights(value, table, message):
    @flow.global_function()
    def job(x: flow.typing.Numpy.Placeholder((2,))) -> flow.typing.Numpy:
        return x * flow.get_variable("w", (2,), initializer=flow.ones_initializer())

    job(np.ones(2, np.float32))
    with pytest.raises(CheckpointError, match=message):
        flow.checkpoint.from_torch({"w": value}, table)


def test_an_empty_file_is_told_as_such(tmp_path):
    two_variables()
    (tmp_path / "empty.pt").touch()
    for load in (flow.checkpoint.from_torch, flow.load):
        with pytest.raises(
            CheckpointError, match="empty.pt' is not a file of torch tensors: it is empty, as a save or a download"
        ):
            load(tmp_path / "empty.pt")


@pytest.mark.parametrize("count", [-5, 2**63 - 1])
def test_a_step_counter_that_cannot_be_is_refused(count):
    @flow.global_function(type="train")
    def job(x: flow.typing.Numpy.Placeholder((2,))) -> flow.typing.Numpy:
        loss = x * flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    job(np.ones(2, np.float32))
    with pytest.raises(
        ArgumentError,
        match=f"variable 'System-Train-TrainStep-job' counts steps and cannot be {count}; it is 0 or more, and below",
    ):
        flow.load_variables({"System-Train-TrainStep-job": np.array([count])})


def test_a_zero_byte_is_in_no_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"a variable called 'a\\x00b' cannot be saved"):
        flow.checkpoint.save(str(tmp_path / "model"), {"a\0b": np.ones(2, np.float32)})
    two_variables()
    for save in (flow.checkpoint.save, lambda path: flow.save({"w": torch.ones(2)}, path)):
        with pytest.raises(OneFlowError, match="zero byte"):
            save(f"{tmp_path}/model\0")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("link", ["a", "a/out", "a/meta"])
def test_links_inside_a_checkpoint_are_not_followed(saved, tmp_path, link):
    (saved / link).rename(tmp_path / "elsewhere")
    (saved / link).symlink_to(tmp_path / "elsewhere")
    for load in (flow.checkpoint.get, flow.load, flow.train.CheckPoint().load):
        with pytest.raises(CheckpointError, match=f"{link}' is a link, which could lead anywhere and is not followed"):
            load(str(saved))
    assert_nothing_loaded()


def test_a_link_to_a_checkpoint_is_followed(saved, tmp_path):
    (tmp_path / "latest").symlink_to(saved)
    assert set(flow.checkpoint.get(tmp_path / "latest")) == {"a", "b"}


def test_a_checkpoint_that_was_not_finished_is_loaded_with_a_warning(saved):
    (saved / "snapshot_done").unlink()
    for load in (flow.checkpoint.get, flow.load, flow.train.CheckPoint().load):
        with pytest.warns(
            UserWarning, match="has no file 'snapshot_done', which is written last: variables may be missing"
        ):
            load(str(saved))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"reader": ' + "9" * 5000 + "}"], ids=["deep", "digits"])
def test_positions_that_no_reader_wrote_are_refused(text):
    job = two_variables()
    job()
    with pytest.raises(CheckpointError, match="'System-DataState-job' of the checkpoint is damaged: "):
        flow.load_variables({"System-DataState-job": np.frombuffer(text.encode(), np.uint8)})
