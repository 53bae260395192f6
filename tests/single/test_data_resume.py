"""A training run on records that is stopped and resumed equals one that never stopped, data order included."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import oneflow as flow
from oneflow.data import write_records
from oneflow.engine.core.errors import CheckpointError
from oneflow.engine.core.record.messages import FeatureValue, encode_record

COUNT = 7
STATE = "System-DataState-train_job"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    fill(folder, 0)
    return folder


def fill(folder, first: int) -> None:
    """Records of x and y = 2 x + 1 in two parts."""
    numbers = np.arange(first, first + COUNT, dtype=np.float32) / 4
    records = [
        encode_record({"x": FeatureValue("float_list", [x]), "y": FeatureValue("float_list", [2 * x + 1])})
        for x in numbers
    ]
    write_records(folder / "part-0", records[:4])
    write_records(folder / "part-1", records[4:])


def define(folder, batch_size=2, **how):
    """A train job and a predict job, each with a reader of its own; both return what they read."""
    flow.clear_default_session()
    how = {"random_shuffle": True, "shuffle_buffer_size": 3, "shuffle_after_epoch": True, **how}

    def pairs(name):
        reader = flow.data.ofrecord_reader(folder, batch_size, 2, name=name, **how)
        return [flow.data.OFRecordRawDecoder(reader, key, (1,), flow.float, name=f"{name}-{key}") for key in "xy"]

    def weight():
        return flow.get_variable("w", shape=(1, 1), initializer=flow.constant_initializer(0.5))

    @flow.global_function(type="train")
    def train_job() -> tuple[flow.typing.Numpy, flow.typing.Numpy]:
        x, y = pairs("read")
        loss = flow.math.square(flow.matmul(x, weight()) - y)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.01]), momentum=0.9).minimize(loss)
        return loss, x

    @flow.global_function(type="predict")
    def eval_job() -> flow.typing.Numpy:
        x, _ = pairs("look")
        return flow.matmul(x, weight())

    return train_job, eval_job


def steps(jobs, count):
    train, evaluate = jobs
    found = []
    for i in range(count):
        loss, x = train()
        found.append([loss.tolist(), x.tolist()] + ([evaluate().tolist()] if i % 2 else []))
    return found


@pytest.mark.parametrize("stop", [0, 2, 6, 14, 16])  # of batches of 2 from 7 records: 14 is the edge of an epoch
def test_resume_through_checkpoint(folder, tmp_path, stop):
    whole = steps(define(folder), 22)
    jobs = define(folder)
    assert steps(jobs, stop) == whole[:stop]
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    jobs = define(folder)
    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert steps(jobs, 22 - stop) == whole[stop:]


def test_resume_in_a_running_session(folder, tmp_path):
    """Back to a saved point, after the readers have gone on and worked ahead."""
    jobs = define(folder)
    steps(jobs, 4)
    flow.checkpoint.save(tmp_path / "saved")
    expected = steps(jobs, 6)
    flow.load_variables(flow.checkpoint.get(tmp_path / "saved"))
    assert steps(jobs, 6) == expected


def test_the_checkpoint_on_disk(folder, tmp_path):
    jobs = define(folder)
    steps(jobs, 5)
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    saved = flow.checkpoint.get(tmp_path / "saved")
    assert {"w", STATE, "System-DataState-eval_job", "System-Train-TrainStep-train_job"} <= set(saved)
    value = saved[STATE]
    data = (tmp_path / "saved" / STATE / "out").read_bytes()
    assert (value.shape, value.dtype) == ((len(data),), flow.uint8)
    (state,) = json.loads(data).values()
    assert (state["epoch"], state["sample"], state["errors"]) == (1, 3, 0)
    assert STATE not in flow.get_all_variables()


def test_another_batch_size_goes_on_at_the_same_sample(folder, tmp_path):
    order = [x for step in steps(define(folder), 20) for x in step[1]]
    steps(define(folder), 6)
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    jobs = define(folder, batch_size=3)
    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert [x for step in steps(jobs, 6) for x in step[1]] == order[12:30]


def test_only_given_variables_are_loaded_without_a_position(folder, tmp_path):
    whole = steps(define(folder), 2)
    steps(define(folder), 5)
    flow.checkpoint.save(tmp_path / "saved")
    jobs = define(folder)
    flow.load_variables({"w": flow.checkpoint.get(tmp_path / "saved")["w"]})
    assert [step[1] for step in steps(jobs, 2)] == [step[1] for step in whole]


def test_other_data_begins_at_its_start(folder, tmp_path):
    steps(define(folder), 5)
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    other = tmp_path / "other"
    other.mkdir()
    write_records(other / "part-0", [encode_record({k: FeatureValue("float_list", [9.0]) for k in "xy"})] * 2)
    write_records(other / "part-1", [encode_record({k: FeatureValue("float_list", [9.0]) for k in "xy"})])
    jobs = define(other)
    with pytest.warns(UserWarning, match="begins at the start of its data: .*other|samples"):
        flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert steps(jobs, 1)[0][1] == [[9.0], [9.0]]


def test_a_checkpoint_without_positions_loads(folder, tmp_path):
    jobs = define(folder)
    steps(jobs, 3)
    flow.checkpoint.save(tmp_path / "saved", flow.get_all_variables())
    assert not (tmp_path / "saved" / STATE).exists()
    define(folder)
    flow.train.CheckPoint().load(str(tmp_path / "saved"))


def test_a_damaged_position_changes_nothing(folder, tmp_path):
    steps(define(folder), 3)
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    out = tmp_path / "saved" / STATE / "out"
    out.write_bytes(b"x" * out.stat().st_size)
    define(folder)
    with pytest.raises(CheckpointError, match=f"{STATE}.*damaged"):
        flow.train.CheckPoint().load(str(tmp_path / "saved"))
    assert flow.get_all_variables()["w"].numpy() == 0.5


def test_readers_end_with_the_session_and_with_their_job(folder):
    def readers():
        return [thread for thread in threading.enumerate() if thread.name.startswith("oneflow-loader")]

    jobs = define(folder)
    steps(jobs, 1)
    assert readers()
    flow.clear_default_session()
    assert not readers()


def test_micro_batches_read_on(folder):
    """Each micro-batch is a batch of the reader."""
    flow.clear_default_session()
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function(type="train", function_config=config)
    def accumulate() -> flow.typing.Numpy:
        reader = flow.data.ofrecord_reader(folder, 2, 2)
        x = flow.data.OFRecordRawDecoder(reader, "x", (1,), flow.float)
        w = flow.get_variable("w", shape=(1, 1), initializer=flow.constant_initializer(0.5))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.0])).minimize(flow.matmul(x, w))
        return x

    assert [(accumulate() * 4).ravel().tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 0]]
