"""Forms of job functions that programs and test files of 2019 to 2021 use: annotations, losses, integers, rows by the
data, scopes."""

from __future__ import annotations

from typing import Any, List, Tuple  # noqa: UP035  as programs of the time write them

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.core.common import data_type_pb2
from oneflow.core.operator import op_conf_pb2
from oneflow.engine.core.errors import ArgumentError, JobError, UnsupportedError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def rate(value: float) -> Any:
    return flow.optimizer.PiecewiseConstantScheduler([], [value])


def test_bundles_and_lists_of_lists() -> None:
    @flow.global_function()
    def bundle(x: tp.Numpy.Placeholder((2, 3))) -> tp.Bundle[tp.ListNumpy]:
        return {"x": x, "more": [x, -x]}

    @flow.global_function()
    def plain(x: tp.Numpy.Placeholder((2, 3))) -> tp.Bundle[tp.Numpy]:
        return x, (x,)

    @flow.global_function()
    def arrays(x: tp.Numpy.Placeholder((2, 3))) -> List[tp.Numpy]:  # noqa: UP006
        return [x, x * 2.0]

    @flow.global_function()
    def lists(x: tp.Numpy.Placeholder((2, 3))) -> List[tp.ListNumpy]:  # noqa: UP006
        return [x, x * 2.0]

    found = bundle(X)
    assert isinstance(found["x"], list) and [type(v) for v in found["more"]] == [list, list]
    np.testing.assert_array_equal(found["more"][1][0], -X)
    np.testing.assert_array_equal(plain(X)[1][0], X)
    np.testing.assert_array_equal(arrays(X)[1], X * 2)
    np.testing.assert_array_equal(lists(X)[1][0], X * 2)


def test_a_tuple_of_inputs_is_a_tuple_in_the_body() -> None:
    seen: list[type] = []

    @flow.global_function()
    def job(pair: Tuple[tp.Numpy.Placeholder((2, 3)), tp.Numpy.Placeholder((2, 3))]) -> tp.Numpy:  # noqa: UP006
        seen.append(type(pair))
        return pair[0] + pair[1]

    np.testing.assert_array_equal(job((X, X)), X * 2)
    assert seen == [tuple]


def test_integers_are_not_trained_and_an_integer_loss_changes_nothing() -> None:
    watched: list[np.ndarray] = []

    @flow.global_function(type="train")
    def job() -> tp.Numpy:
        count = flow.get_variable("count", (2,), dtype=flow.int32, initializer=flow.ones_initializer(flow.int32))
        weight = flow.get_variable("weight", (2,), initializer=flow.ones_initializer())
        flow.watch_diff(weight, lambda gradient: watched.append(gradient.numpy()))
        flow.watch_diff(count, lambda gradient: watched.append(gradient.numpy()))
        flow.optimizer.SGD(rate(1.0), momentum=0).minimize(count * 2)
        return count + flow.cast(weight, flow.int32)

    assert [job().tolist(), job().tolist()] == [[2, 2]] * 2
    assert [(gradient.tolist(), gradient.dtype) for gradient in watched[:2]] == [
        ([0, 0], np.float32),
        ([0, 0], np.int32),
    ]


def test_a_loss_that_was_added_and_minimized_counts_once() -> None:
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
        loss = flow.get_variable("w", (1,), initializer=flow.ones_initializer()) * x
        flow.losses.add_loss(loss)
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(loss)
        return loss

    job(np.float32([1, 2, 3, 4]))
    assert flow.get_all_variables()["w"].numpy() == pytest.approx(0.75)


def test_a_watched_gradient_is_an_exact_sum() -> None:
    gradients: list[np.ndarray] = []

    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((7, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3,), initializer=flow.ones_initializer())
        flow.watch_diff(w, lambda gradient: gradients.append(gradient.numpy()))
        loss = x + w
        flow.optimizer.SGD(rate(0.3), momentum=0).minimize(loss)
        return loss

    job(np.zeros((7, 3), np.float32))
    assert gradients[0].tolist() == [7, 7, 7]
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), 1 - 0.3 * 7 / 21, rtol=1e-6)


def test_clearing_the_session_forgets_the_number_of_devices() -> None:
    flow.config.cpu_device_num(3)
    flow.clear_default_session()
    assert flow.current_resource() == {"gpu_device_num": None, "cpu_device_num": None}


def test_rows_by_the_data_are_cut_where_they_leave_the_job() -> None:
    seen: list[Any] = []

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3), dtype=flow.int32)) -> Tuple[tp.Numpy, tp.ListNumpy, tp.Numpy]:  # noqa: UP006
        flow.watch(flow.argwhere(x), lambda rows: seen.append((rows.is_dynamic, rows.numpy().tolist())))
        return flow.argwhere(x, dtype=flow.int64), flow.nonzero(x)[1], x

    mask = np.int32([[0, 4, 0], [7, 0, 1]])
    places, columns, same = job(mask)
    assert places.tolist() == [[0, 1], [1, 0], [1, 2]] and places.dtype == np.int64 and places.is_dynamic
    assert columns[0].tolist() == [1, 0, 2] and not same.is_dynamic
    assert seen == [(True, [[0, 1], [1, 0], [1, 2]])]
    assert job(mask * 0)[0].shape == (0, 2)


def test_unique_values_and_sums_of_rows() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((5,), dtype=flow.int32), rows: tp.Numpy.Placeholder((5, 2))) -> tp.Bundle[tp.Numpy]:
        return (
            flow.experimental.unique_with_counts(x),
            flow.experimental.indexed_slices_reduce_sum(x, rows),
            flow.experimental.square_sum(rows),
        )

    rows = np.arange(10, dtype=np.float32).reshape(5, 2)
    (values, places, counts, number), (indices, sums, total), squares = job(np.int32([4, 9, 4, 4, 1]), rows)
    assert [values.tolist(), places.tolist(), counts.tolist(), number.tolist()] == [
        [4, 9, 1],
        [0, 1, 0, 0, 2],
        [3, 1, 1],
        [3],
    ]
    assert indices.tolist() == [4, 9, 1] and sums.tolist() == [[10, 13], [2, 3], [8, 9]] and total.tolist() == [3]
    assert squares.tolist() == [(rows**2).sum()]


def test_categories_get_numbers_that_stay() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((3, 3), dtype=flow.int64)) -> tp.Numpy:
        return flow.layers.categorical_ordinal_encoder(x, 4)

    assert job(np.int64([[7, 0, 2], [1, 7, 2], [0, 1, 7]])).tolist() == [[1, 0, 2], [3, 1, 2], [0, 3, 1]]
    assert job(np.int64([[5, 7, 0]] * 3)).tolist() == [[4, 1, 0]] * 3
    with pytest.raises(RuntimeError, match="CategoricalOrdinalEncoder"):
        job(np.int64([[6, 7, 0]] * 3))


def test_activations_and_dtypes_by_number() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> Tuple[tp.Numpy, tp.Numpy]:  # noqa: UP006
        one = flow.constant_initializer(-1.0)
        out = flow.layers.dense(x, 2, op_conf_pb2.kRelu, kernel_initializer=one)
        same = flow.layers.dense(x, 2, activation=op_conf_pb2.kNone, kernel_initializer=one)
        return out, flow.cast(same, data_type_pb2.kInt32)

    relu, plain = job(X)
    assert relu.tolist() == [[0, 0]] * 2 and plain.dtype == np.int32 and plain.tolist() == [[-3, -3], [-12, -12]]

    @flow.global_function()
    def wrong(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return flow.layers.dense(x, 2, 9)

    with pytest.raises(ArgumentError, match="kNone, kTanH, kSigmoid or kRelu of op_conf_pb2; got 9"):
        wrong(X)


def test_variables_are_read_and_written_and_sliced_by_name() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((1, 2))) -> tp.Numpy:
        w = flow.get_variable("w", (2, 3), initializer=flow.zeros_initializer(), trainable=False)
        flow.experimental.logical_slice_assign(w, x, [[0, 1, 1], [1, 3, 1]])
        return flow.experimental.logical_slice(w, [[0, 1, 1]])

    assert job(np.float32([[5, 6]])).tolist() == [[0, 0, 0]]
    assert flow.experimental.get_interface_blob_value("w").tolist() == [[0, 5, 6], [0, 0, 0]]
    flow.experimental.set_interface_blob_value("w", np.full((2, 3), 2, np.float32))
    assert job(np.float32([[5, 6]])).tolist() == [[2, 2, 2]]
    with pytest.raises(ArgumentError, match="no job has a variable 'v'"):
        flow.experimental.get_interface_blob_value("v")


@pytest.mark.parametrize("recomputes", [True, False])
def test_a_region_that_is_recomputed_trains_the_same(recomputes: bool) -> None:
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3, 3), initializer=flow.constant_initializer(0.1))
        with flow.experimental.scope.config(checkpointing=recomputes):
            x = flow.math.tanh(flow.matmul(flow.math.sigmoid(flow.matmul(x, w)), w))
        loss = flow.math.reduce_sum(flow.math.square(x))
        flow.optimizer.SGD(rate(0.5), momentum=0).minimize(loss)
        return loss

    losses = [float(job(X)[0]) for _ in range(3)]
    w = np.full((3, 3), 0.1)
    expected = []
    for _ in range(3):
        a = 1 / (1 + np.exp(-X @ w))
        y = np.tanh(a @ w)
        expected.append((y**2).sum())
        dy = 2 * y * (1 - y**2)
        w = w - 0.5 * (a.T @ dy + X.T @ ((dy @ w.T) * a * (1 - a)))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_ops_by_the_name_of_their_kernel() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> Tuple[tp.Numpy, tp.Numpy]:  # noqa: UP006
        relu = (
            flow.user_op_builder("act")
            .Op("relu")
            .Input("in", [x - 2.0])
            .Output("out")
            .Build()
            .InferAndTryRun()
            .RemoteBlobList()[0]
        )
        total = (
            flow.user_op_builder("all")
            .Op("reduce_sum")
            .Input("input_tensor", [x])
            .Output("output_tensor")
            .Attr("axis", [0])
            .Attr("keepdims", False)
        )
        return relu, total.Build().InferAndTryRun().SoleOutputBlob()

    relu, total = job(X)
    np.testing.assert_array_equal(relu, np.maximum(X - 2, 0))
    np.testing.assert_array_equal(total, X.sum(0))
    with pytest.raises(
        UnsupportedError,
        match=r"user_op_builder\('o'\).Op\('relux'\): no op is here under this type. Did you mean 'relu'",
    ):
        flow.user_op_builder("o").Op("relux")
    with pytest.raises(ArgumentError, match=r"Build\(\) comes after .Op\(type\)"):
        flow.user_op_builder("o").Build()
    with pytest.raises(ArgumentError, match="comes after .InferAndTryRun"):
        flow.user_op_builder("o").Op("relu").RemoteBlobList()
    with pytest.raises(UnsupportedError, match="2 outputs of 'out'; the ops that are here have one"):
        flow.user_op_builder("o").Op("relu").Output("out", 2)


def test_a_bert_gather_of_positions() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((8, 64, 16)), places: tp.Numpy.Placeholder((8, 5), dtype=flow.int32)) -> tp.Numpy:
        return flow.gather(x, places, axis=2, batch_dims=2)

    random = np.random.default_rng(0)
    x, places = random.normal(size=(8, 64, 16)).astype(np.float32), random.integers(0, 64, (8, 5)).astype(np.int32)
    np.testing.assert_array_equal(job(x, places), np.take_along_axis(x, places[:, :, None].astype(np.int64), 1))


def test_a_joined_axis_is_bounded_by_what_comes() -> None:
    @flow.global_function()
    def job(a=flow.input_blob_def((4, 2), flow.float, True), b=flow.input_blob_def((4, 2), flow.float, True)):  # type: ignore[no-untyped-def]
        return flow.concat([a, b], axis=0, max_dim_size=5)

    ones = np.ones((4, 2), np.float32)
    assert job(ones[:2], ones[:3]).get().shape == (5, 2)
    with pytest.raises(ArgumentError, match="concat gives 6 elements on axis 0, max_dim_size is 5"):
        job(ones[:3], ones[:3])


def test_a_batch_of_nothing_changes_nothing() -> None:
    @flow.global_function(type="train")
    def job(x: tp.ListNumpy.Placeholder((4, 2))) -> tp.ListNumpy:
        loss = flow.get_variable("w", (2,), initializer=flow.ones_initializer()) * x
        flow.optimizer.SGD(rate(0.1), momentum=0).minimize(loss)
        return loss

    assert job([np.ones((0, 2), np.float32)])[0].shape == (0, 2)
    assert flow.get_all_variables()["w"].numpy().tolist() == [1, 1]


def test_micro_batches_by_hand_are_those_of_one() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return flow.acc(flow.pack(flow.unpack(flow.repeat(x, 1), 1), 1), 1)

    np.testing.assert_array_equal(job(X), X)


def test_an_uneven_batch_of_a_mirrored_job_is_refused() -> None:
    config = flow.function_config()
    config.default_logical_view(flow.scope.mirrored_view())
    flow.config.cpu_device_num(2)

    @flow.global_function(function_config=config)
    def job(x: tp.Numpy.Placeholder((3, 2))) -> tp.ListNumpy:
        return x

    with pytest.raises(
        JobError, match="mirrored view on 2 devices, which share out its input .* its batch of 3 is no multiple of 2"
    ):
        job(np.zeros((3, 2), np.float32))
