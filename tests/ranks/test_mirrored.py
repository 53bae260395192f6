"""The mirrored view on two devices: independent copies of a job, their inputs, results and data."""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np
import pytest
from mirrored_jobs import batches, close, mirrored, sgd, variable

import oneflow as flow
import oneflow.typing as tp
from oneflow.core.record import record_pb2 as ofrecord
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.data.formats.records import write_records


@pytest.fixture(autouse=True)
def two_devices():
    flow.config.cpu_device_num(2)


# -------------------------------------------------------------- inputs and results


@pytest.mark.parametrize("view", [flow.scope.mirrored_view, flow.distribute.mirrored_strategy])
def test_each_device_runs_a_copy_on_inputs_of_its_own(view):
    @flow.global_function(function_config=mirrored(view()))
    def job(x=flow.MirroredTensorDef((4, 3))):
        return {"rows": flow.math.reduce_sum(x, axis=1), "all": [x, flow.math.reduce_max(x)]}

    for rows in ((4, 4), (1, 4), (4, 1), (2, 3)):
        fed = batches(*rows)
        got = job(fed).get()
        for i, x in enumerate(fed):
            close(got["rows"].numpy(i), x.sum(1))
            close(got["all"][0].numpy_list()[i], x)
            close(got["all"][1].ndarray_list()[i], [x.max()])
        assert got["rows"].parallel_num() == 2
    fed = batches(3, 4)
    assert [piece.shape for piece in job(tuple(fed)).get()["rows"].numpy_list()] == [(3,), (4,)]


def test_one_array_is_shared_out_along_its_batch():
    shapes = []

    @flow.global_function(function_config=mirrored())
    def job(
        x: tp.Numpy.Placeholder((4, 3)),
        turned: tp.Numpy.Placeholder((3, 4), batch_axis=1),
        same: tp.Numpy.Placeholder((3,), batch_axis=None),
    ) -> Tuple[tp.ListNumpy, tp.ListNumpy]:
        shapes.extend([x.shape, turned.shape, same.shape])
        return x + same, turned

    x, same = np.arange(12, dtype=np.float32).reshape(4, 3), np.float32([1, 2, 3])
    rows, columns = job(x, np.ascontiguousarray(x.T), same)
    assert shapes == [(2, 3), (3, 2), (3,)]
    for i in range(2):
        close(rows[i], x[2 * i : 2 * i + 2] + same)
        close(columns[i], x.T[:, 2 * i : 2 * i + 2])


def test_a_device_may_have_nothing():
    @flow.global_function(function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        return x * 2

    got = job([np.ones((0, 3), np.float32), np.ones((4, 3), np.float32)])
    assert [piece.shape for piece in got] == [(0, 3), (4, 3)] and (got[1] == 2).all()


def test_results_as_their_annotations_say():
    @flow.global_function(function_config=mirrored())
    def listed(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        return x * 2

    @flow.global_function(function_config=mirrored())
    def nested(x: tp.ListNumpy.Placeholder((4, 3))) -> Tuple[tp.ListNumpy, Dict[str, tp.ListListNumpy]]:
        return x + 1, {"same": x}

    @flow.global_function(function_config=mirrored())
    def called_back(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.Callback[tp.ListNumpy]:
        return x

    fed = batches(2, 4)
    got = listed(fed)
    assert type(got) is list and all(type(piece) is np.ndarray for piece in got)
    first, rest = nested(fed)
    for i, x in enumerate(fed):
        close(got[i], x * 2)
        close(first[i], x + 1)
        close(rest["same"][i], [x])
    kept = []
    called_back(fed)(kept.extend)
    close(kept[0], fed[0])
    assert len(kept) == 2


def test_a_result_of_several_pieces_is_no_single_array():
    @flow.global_function(function_config=mirrored())
    def job(x=flow.MirroredTensorDef((4, 3))):
        return x

    result = job(batches(2, 4)).get()
    for taken in (result.numpy, result.ndarray, lambda: np.sum(result)):
        with pytest.raises(
            ArgumentError,
            match=r"has 2 pieces, one array a device .* say which with numpy\(parallel_id\), or take all with numpy_list",
        ):
            taken()
    with pytest.raises(AssertionError, match=r"has no 'mean' of its own; take an array with numpy\(parallel_id\)"):
        result.mean()
    for wrong in (2, -1, "0"):
        with pytest.raises(ArgumentError, match=f"has 2 pieces, there is no parallel_id {wrong!r}"):
            result.numpy(wrong)
    assert repr(result) == f"MirroredResult([{result.numpy(0)!r}, {result.numpy(1)!r}])"


def test_lists_of_lists_are_put_together_device_by_device():
    @flow.global_function(function_config=mirrored())
    def job(
        x: tp.ListListNumpy.Placeholder((6, 3)), factor: tp.Numpy.Placeholder((1,), batch_axis=None)
    ) -> tp.ListNumpy:
        return x * factor

    fed = [batches(1, 2), batches(3)]
    got = job(fed, np.array([2], np.float32))
    for piece, arrays in zip(got, fed):
        close(piece, 2 * np.concatenate(arrays))


def test_watched_values_come_from_every_device():
    seen = []

    def keep(pieces: tp.ListNumpy):
        seen.append(pieces)

    @flow.global_function(type="train", function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((4,))) -> None:
        loss = variable("w", (1,), 3.0) * x
        flow.watch(loss, keep)
        flow.watch_diff(x, keep)
        sgd().minimize(loss)

    job([np.array([1, 2], np.float32), np.array([5], np.float32)])
    assert [[piece.tolist() for piece in pieces] for pieces in seen] == [[[3, 6], [15]], [[3, 3], [3]]]


# -------------------------------------------------------------- data


def numbers(folder, batch_size):
    reader = flow.data.ofrecord_reader(str(folder), batch_size=batch_size)
    return flow.data.OFRecordRawDecoder(reader, "number", shape=(), dtype=flow.int32)


@pytest.fixture
def folder(tmp_path):
    records = [
        ofrecord.OFRecord(feature={"number": ofrecord.Feature(int32_list=ofrecord.Int32List(value=[i]))})
        for i in range(8)
    ]
    write_records(tmp_path / "part-0", records)
    return tmp_path


def test_each_device_reads_its_share_of_a_batch(folder):
    @flow.global_function(function_config=mirrored())
    def job() -> tp.ListNumpy:
        return numbers(folder, 4)

    got = [[piece.tolist() for piece in job()] for _ in range(2)]
    assert all(len(piece) == 2 for pieces in got for piece in pieces)
    assert [sorted(pieces[0] + pieces[1]) for pieces in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_first_device_reads_more_of_an_uneven_batch(folder):
    @flow.global_function("train", function_config=mirrored())
    def job() -> tp.ListNumpy:
        read = numbers(folder, 3)
        w = flow.get_variable("w", (1,), initializer=flow.ones_initializer())
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(
            w * flow.cast(read, flow.float)
        )
        return read

    assert [[piece.tolist() for piece in job()] for _ in range(2)] == [[[0, 1], [2]], [[3, 4], [5]]]
    gradients = (0 + 1) / 2 + 2 + (3 + 4) / 2 + 5  # each device divides by its own share
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), [1 - 0.1 * gradients], rtol=1e-6)


def test_a_batch_that_devices_cannot_share(folder):
    @flow.global_function(function_config=mirrored())
    def job() -> tp.ListNumpy:
        return numbers(folder, 1)

    with pytest.raises(
        ArgumentError, match="gives batches of 1, which 2 devices cannot share; choose a batch size that 2 divides"
    ):
        job()


def test_a_variable_that_is_itself_the_loss_is_one_loss_and_not_one_of_each_device():
    @flow.global_function("train", function_config=mirrored())
    def job():
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        v = flow.get_variable("v", (2,), initializer=flow.ones_initializer())
        flow.losses.add_loss(flow.identity(v))  # this one is
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0).minimize(w)

    job()
    found = flow.get_all_variables()
    assert found["w"].numpy().tolist() == [0.5, 0.5] and found["v"].numpy().tolist() == [0.0, 0.0]
