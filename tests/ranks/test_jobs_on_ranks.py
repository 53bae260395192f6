"""Jobs on several devices: everything that goes in and comes out, readers, and errors with their rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from nets import begin
from processes import open_segments
from rank_jobs import rate, weight

import oneflow as flow
import oneflow.typing as tp
from oneflow.data import write_records
from oneflow.engine.core.errors import ArgumentError, RunError, WorkerError
from oneflow.engine.core.record.messages import FeatureValue, encode_record
from oneflow.engine.job.function import default_session
from oneflow.engine.runtime.driver.driver import Loaded
from oneflow.engine.step.executor import StepNumbers

X = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)


def results_of_every_kind() -> Any:
    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((7, 4)), n: tp.Numpy.Placeholder((7,), dtype=flow.int64)):
        top, where = flow.math.top_k(x, k=2), flow.math.argmax(x)
        return {
            "tuple": (x * 2.0, flow.matmul(x, weight("w", 4, 3))),
            "scalars": [
                flow.math.reduce_sum(x),
                flow.math.reduce_mean(x),
                flow.math.reduce_max(x),
                flow.math.reduce_min(x),
            ],
            "ints": (n + n, flow.cast(n, flow.int8), top, where),
            "whole": weight("w", 4, 3),
            "constant": flow.constant(3.0, flow.float32, (2,)),
            "batch in the middle": flow.transpose(x, (1, 0)),
            "input": x,
        }

    return [job(X, np.arange(7)).get()]


def inputs_of_every_kind() -> Any:
    @flow.global_function("predict")
    def job(
        across: tp.Numpy.Placeholder((3, 6), batch_axis=1),
        whole: tp.Numpy.Placeholder((3, 2), batch_axis=None),
        one: tp.Numpy.Placeholder((1, 2)),
        flags: tp.Numpy.Placeholder((6,), dtype=flow.int8),
    ):
        return flow.matmul(across, whole, transpose_a=True) + one, flow.math.reduce_sum(flow.cast(flags, flow.int32))

    return [job(np.ascontiguousarray(X[:6, :3].T), X[:3, :2], X[:1, 2:], np.arange(6, dtype=np.int8)).get()]


def dynamic_batches() -> Any:
    @flow.global_function("train")
    def job(x=flow.input_blob_def((7, 4), is_dynamic=True)):  # type: ignore[no-untyped-def]
        loss = flow.math.square(flow.matmul(x, weight("w", 4, 3)))
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    return [job(X[:rows]).get() for rows in (7, 3, 1, 4, 7)]


def jobs_that_share_variables() -> Any:
    def net(x: Any) -> Any:
        return flow.layers.dense(
            flow.math.tanh(x), 3, name="dense", kernel_initializer=flow.random_normal_initializer()
        )

    @flow.global_function("train")
    def train(x: tp.Numpy.Placeholder((7, 4))) -> tp.Numpy:
        loss = flow.math.square(net(x))
        flow.optimizer.Adam(rate(0.1)).minimize(loss)
        return loss

    @flow.global_function("predict")
    def predict(x: tp.Numpy.Placeholder((2, 4))) -> tp.Numpy:
        return net(x)

    return [[train(X), predict(X[:2])] for _ in range(3)]


def watched_values() -> Any:
    seen: list[Any] = []

    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((7, 4))) -> tp.Numpy:
        h = flow.math.tanh(flow.matmul(x, weight("w", 4, 4)))
        loss = flow.math.square(flow.matmul(h, weight("v", 4, 2, distribute=flow.distribute.split(1))))
        for blob in (h, loss, flow.math.reduce_sum(h)):
            flow.watch(blob, lambda value: seen.append(value.numpy().copy()))
        for blob in (x, h, flow.get_variable("w", (4, 4)), flow.get_variable("v", (4, 2))):
            flow.watch_diff(blob, lambda value: seen.append(value.numpy().copy()))
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    return [job(X), job(X), seen]


def watched_gradients_of_micro_batches() -> Any:
    seen: list[Any] = []
    config = flow.function_config()
    config.train.num_gradient_accumulation_steps(2)

    @flow.global_function("train", config)
    def job(x: tp.Numpy.Placeholder((8, 4))) -> tp.Numpy:
        w = weight("w", 4, 4)
        flow.watch_diff(w, lambda value: seen.append(value.numpy().copy()))
        loss = flow.math.square(flow.matmul(x, w))
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    x = np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)
    return [job(x), job(x), seen]


def assigned_variables() -> Any:
    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((7, 4))) -> tp.Numpy:
        average = weight("average", 1, 4, trainable=False)
        halves = weight("halves", 6, 4, trainable=False, distribute=flow.distribute.split(0))
        loss = flow.math.square(x * weight("w", 1, 4) - average)
        flow.assign(average, average * 0.5 + flow.math.reduce_mean(x, axis=0, keepdims=True))
        flow.assign(halves, halves * 0.5 + flow.slice(x, [0, 0], [6, 4]))
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    return [job(X), job(X * 2), *(flow.get_all_variables()[name].numpy() for name in ("average", "halves", "w"))]


def rates_that_the_job_computes() -> Any:
    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((7, 4)), speed: tp.Numpy.Placeholder((1,))) -> tp.Numpy:
        halved = speed * 0.5
        loss = flow.math.square(flow.matmul(x, weight("w", 4, 4)))
        flow.optimizer.SGD(flow.optimizer.CustomScheduler(halved.logical_blob_name)).minimize(loss)
        return loss

    return [job(X, np.array([0.1 * (step + 1)], np.float32)) for step in range(4)]


def split_embeddings_and_classes() -> Any:
    """Rows of a table and classes of a softmax over the devices; sizes that do not come out even."""

    @flow.global_function("train")
    def job(words: tp.Numpy.Placeholder((7,), dtype=flow.int32)) -> tp.Numpy:
        h = flow.gather(weight("table", 11, 8, distribute=flow.distribute.split(0)), words)
        logits = flow.layers.dense(
            h,
            9,
            name="classes",
            kernel_initializer=flow.random_normal_initializer(),
            model_distribute=flow.distribute.split(0),
        )
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(words, logits.with_distribute(flow.distribute.split(1)))
        flow.optimizer.SGD(rate(0.1)).minimize(
            flow.parallel_cast(loss, flow.distribute.broadcast(), flow.distribute.broadcast())
        )
        return loss

    return [job(np.arange(7, dtype=np.int32) + step % 2) for step in range(4)]


def layers_wider_than_their_batch() -> Any:
    """Their gradients are made on every rank, of activations that all ranks gather, and used some rows at a time."""

    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((7, 256))) -> tp.Numpy:
        for name, wide, narrow in (("first", 8192, 256), ("second", 256, 8192)):
            small = flow.get_variable(name, (wide, narrow), initializer=flow.random_normal_initializer(0.0, 0.02))
            x = flow.math.tanh(flow.matmul(x, small, transpose_b=True))
        loss = flow.math.square(x)
        flow.optimizer.SGD(rate(0.01), momentum=0.9).minimize(loss)
        return loss

    drawn = np.random.default_rng(1).normal(size=(4, 7, 256)).astype(np.float32)
    return [job(x) for x in drawn]


def parts_that_are_views() -> Any:
    """What a rank keeps of a value, or sends itself, may be a view of it; the value is read again later."""

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2), batch_axis=None)):
        doubled, w = x * 2.0, weight("w", 4, 2)
        halves = [flow.reshape(value.with_distribute(flow.distribute.split(0)), (4, 2, 1)) for value in (doubled, w)]
        with flow.scope.placement("cpu", "0:0"):
            first = x * 3.0
        return [flow.nn.relu(half) for half in halves], flow.nn.relu(flow.reshape(first, (4, 2, 1))), doubled, w, first

    return [job(X[:4, :2]).get() for _ in range(2)]


def whole_values_of_split_ones() -> Any:
    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))):
        return (x * 2.0).with_distribute(flow.distribute.broadcast())

    return [job(X[:4, :2]).get()]


def wide_layers_whose_input_is_watched() -> Any:
    """Only the first rank sends what is watched, and yet all gather it the same way."""
    seen: list[Any] = []

    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((4, 1024))) -> tp.Numpy:
        small = flow.random_normal_initializer(0.0, 0.02)
        h = flow.nn.relu(flow.matmul(x, flow.get_variable("first", (1024, 2048), initializer=small)))
        loss = flow.math.square(
            flow.matmul(h, flow.get_variable("second", (1024, 2048), initializer=small), transpose_b=True)
        )
        flow.watch(h.with_distribute(flow.distribute.broadcast()), lambda value: seen.append(value.numpy().copy()))
        flow.watch_diff(flow.get_variable("first", (1024, 2048)), lambda value: seen.append(value.numpy().copy()))
        flow.optimizer.SGD(rate(0.1)).minimize(loss)
        return loss

    x = np.random.default_rng(1).normal(size=(4, 1024)).astype(np.float32)
    return [job(x), job(x), seen]


def random_numbers() -> Any:
    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((8, 4))):
        drawn = flow.data.decode_random(
            (3,), flow.float32, batch_size=8, initializer=flow.random_uniform_initializer(0, 1)
        )
        mask = flow.nn.dropout(flow.matmul(x, weight("w", 4, 6)), 0.4)
        flips = flow.random.coin_flip(8, probability=0.5)
        flow.optimizer.SGD(rate(0.1)).minimize(mask)
        return drawn, mask, flips, flow.random.shuffle(x)

    return [job(np.concatenate([X, X[:1]])).get() for _ in range(3)]


PROGRAMS = [
    results_of_every_kind, inputs_of_every_kind, dynamic_batches, jobs_that_share_variables, watched_values, assigned_variables,
    watched_gradients_of_micro_batches,
    rates_that_the_job_computes, split_embeddings_and_classes, layers_wider_than_their_batch,
    parts_that_are_views, whole_values_of_split_ones, wide_layers_whose_input_is_watched, random_numbers,
]  # fmt: skip


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_many_devices_give_what_one_does(program: Callable[[], Any], devices: int) -> None:
    begin(1)
    expected = _arrays(program())
    begin(devices)
    got = _arrays(program())
    assert [(a.shape, a.dtype) for a in got] == [(a.shape, a.dtype) for a in expected]
    for mine, theirs in zip(got, expected):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-5)


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [array for one in value for array in _arrays(one)]
    return [np.array(value.numpy() if hasattr(value, "numpy") else value)]


# ------------------------------------------------------------------ readers


@pytest.fixture
def records(tmp_path):
    records = [
        encode_record({"x": FeatureValue("float_list", [i, -i]), "y": FeatureValue("int32_list", [i])})
        for i in range(11)
    ]
    write_records(tmp_path / "part-0", records[:6])
    write_records(tmp_path / "part-1", records[6:])
    return tmp_path


def read(folder: Any, steps: int, stages: tuple[str, str] | None = None) -> list[np.ndarray]:
    """What every record was, in order, and the losses."""

    @flow.global_function("train")
    def job():
        reader = flow.data.ofrecord_reader(
            folder, 4, 2, random_shuffle=True, shuffle_buffer_size=5, shuffle_after_epoch=True, name="reader"
        )
        x = flow.data.OFRecordRawDecoder(reader, "x", (2,), flow.float32)
        y = flow.data.OFRecordRawDecoder(reader, "y", (1,), flow.int32)
        with flow.scope.placement("cpu", stages[0]) if stages else nullcontext():
            h = flow.matmul(x, weight("w", 2, 3))
        with flow.scope.placement("cpu", stages[1]) if stages else nullcontext():
            loss = flow.math.reduce_sum(h, axis=1) * 0.1 + flow.squeeze(flow.cast(y, flow.float32), (1,))
            y = flow.identity(y)
        flow.optimizer.SGD(rate(0.01)).minimize(loss)
        return x, y, loss

    return [array for _ in range(steps) for array in _arrays(job().get())]


@pytest.mark.parametrize(
    "devices, stages", [(2, None), (4, None), (3, None), (3, ("0:0", "0:1-2")), (2, ("0:1", "0:0"))]
)
def test_ranks_read_the_records_that_one_device_reads(records, devices, stages) -> None:
    begin(1)
    expected = read(records, 6)
    begin(devices)
    for mine, theirs in zip(read(records, 6, stages), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-5)


def test_a_job_that_takes_the_place_of_one_with_readers_is_fed_its_own_inputs(records) -> None:
    begin(2)
    read(records, 1)

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return x * 2.0

    np.testing.assert_array_equal(job(X[:4, :2]), X[:4, :2] * 2)


def test_ranks_forget_the_programs_that_eager_execution_replaces() -> None:
    begin(2)
    flow.enable_eager_execution()
    factors = [2.0, 3.0]

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return x * factors.pop()

    for factor in (3, 2):
        np.testing.assert_array_equal(job(X[:4, :2]), X[:4, :2] * np.float32(factor))
    with pytest.raises(WorkerError, match="raised KeyError: 1"):
        default_session().backend.driver.step([Loaded(1, [], [False] * 2)] * 2, StepNumbers(0, (), 1.0), "job")


def test_results_stay_what_they_are_and_nothing_stays_of_the_memory_they_came_through() -> None:
    begin(2)

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return x * 2.0

    @flow.global_function("predict")
    def larger(x: tp.Numpy.Placeholder((1 << 10, 1 << 10))) -> tp.Numpy:
        return x + 1.0

    big = np.arange(1 << 20, dtype=np.float32).reshape(1 << 10, 1 << 10)
    kept = [job(X[:4, :2] + step) for step in range(3)] + [larger(big), larger(-big), job(X[:4, 2:])]
    for step in range(3):
        np.testing.assert_array_equal(kept[step], (X[:4, :2] + step) * 2)
    np.testing.assert_array_equal(kept[3], big + 1)
    np.testing.assert_array_equal(kept[4], 1 - big)
    np.testing.assert_array_equal(kept[5], X[:4, 2:] * 2)
    assert open_segments()
    flow.clear_default_session()
    assert not open_segments()


def test_calls_from_several_threads_take_turns() -> None:
    begin(2)

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return x * 2.0

    job(X[:4, :2])
    with ThreadPoolExecutor(4) as threads:
        for number, found in enumerate(threads.map(lambda number: job(np.full((4, 2), number, np.float32)), range(60))):
            np.testing.assert_array_equal(found, np.full((4, 2), 2 * number))


# ------------------------------------------------------------------- errors


def test_an_op_that_fails_on_one_rank_is_named_with_job_line_and_rank() -> None:
    begin(2)

    @flow.global_function("predict")
    def look(words: tp.Numpy.Placeholder((4,), dtype=flow.int32)) -> tp.Numpy:
        return flow.gather(flow.get_variable("table", (5, 2), initializer=flow.zeros_initializer()), words)

    with pytest.raises(RunError) as failure:
        look(np.array([0, 1, 2, 99], np.int32))
    for part in ("job 'look'", "step 0", "op 'Gather_0'", r"test_jobs_on_ranks.py:\d+", "rank 1", "out of range"):
        assert re.search(part, str(failure.value)), part


def test_a_layout_that_a_value_cannot_have_is_refused_at_its_line() -> None:
    begin(2)

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((4, 2))) -> tp.Numpy:
        return flow.parallel_cast(x, flow.distribute.split(2))

    with pytest.raises(ArgumentError, match=r"test_jobs_on_ranks.py:\d+.*cannot be split along dim 2"):
        job(np.zeros((4, 2), np.float32))
