"""The mirrored view on two devices: independent copies of a job that share their variables."""

from __future__ import annotations

from typing import Dict, Tuple

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.compiler import bucket
from oneflow.core.errors import ArgumentError, DTypeError, JobError, UnsupportedError
from oneflow.core.record import record_pb2 as ofrecord
from oneflow.data.records import write_records

RATE = 0.1
X = np.zeros((2, 3), np.float32)


@pytest.fixture(autouse=True)
def two_devices():
    flow.config.cpu_device_num(2)


def mirrored(view=None):
    config = flow.function_config()
    config.default_logical_view(view or flow.scope.mirrored_view())
    return config


def sgd(momentum=0.0, **more):
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [RATE]), momentum=momentum, **more)


def variable(name, shape, value=1.0):
    return flow.get_variable(name, shape, initializer=flow.constant_initializer(value))


def values(*names):
    every = flow.get_all_variables()
    return [every[name].numpy() for name in names]


def batches(*rows, columns=3, seed=0):
    random = np.random.default_rng([seed, *rows])
    return [random.standard_normal((n, columns)).astype(np.float32) for n in rows]


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


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
            ArgumentError, match=r"has 2 pieces, one array a device .* say which with numpy\(parallel_id\), or take all with numpy_list"
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
    def job(x: tp.ListListNumpy.Placeholder((6, 3)), factor: tp.Numpy.Placeholder((1,), batch_axis=None)) -> tp.ListNumpy:
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


# -------------------------------------------------------------- training


class Linear:
    """loss = rows of ((x w + b) s) squared; its training written out, with gradients summed over devices."""

    def __init__(self):
        self.w, self.b, self.s = np.ones((3, 2)), np.ones((1, 2)), np.full((1, 2), 0.5)
        self.velocity = [np.zeros_like(v) for v in (self.w, self.b, self.s)]

    def gradients(self, x, divisor):
        hidden = x @ self.w + self.b
        out = 2 * hidden * self.s / divisor
        inner = out * self.s
        return [x.T @ inner, inner.sum(0, keepdims=True), (out * hidden).sum(0, keepdims=True)]

    def losses(self, x):
        return (((x @ self.w + self.b) * self.s) ** 2).sum(1)

    def step(self, fed, momentum=0.0, clip=None):
        total = [sum(parts) for parts in zip(*(self.gradients(x, len(x)) for x in fed))]
        if clip is not None:
            norm = np.sqrt(sum((g**2).sum() for g in total))
            total = [g * min(1, clip / norm) for g in total]
        for value, velocity, g in zip((self.w, self.b, self.s), self.velocity, total):
            velocity[:] = momentum * velocity - RATE * g
            value += velocity


def linear(x, optimizer):
    hidden = flow.matmul(x, variable("w", (3, 2))) + variable("b", (1, 2))
    # In this order the gradient of b is made before that of s from a batch of one, and after it from any other.
    out = variable("s", (1, 2), 0.5) * hidden
    loss = flow.math.reduce_sum(out * out, axis=1)
    optimizer.minimize(loss)
    return loss


@pytest.mark.parametrize("in_one_bucket", [True, False])
def test_gradients_are_summed_over_devices_and_divided_by_the_batch_of_each(in_one_bucket, monkeypatch):
    if not in_one_bucket:
        monkeypatch.setattr(bucket, "BYTES", 1)

    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        return linear(x, sgd())

    expected = Linear()
    for number, rows in enumerate([(4, 4), (1, 3), (2, 1), (1, 1)]):
        fed = batches(*rows, seed=number)
        for got, x in zip(train(fed), fed):
            close(got, expected.losses(x))
        expected.step(fed)
        for got, value in zip(values("w", "b", "s"), (expected.w, expected.b, expected.s)):
            close(got, value)


def test_large_gradients_of_different_programs_are_summed():
    """A device meets a batch size for the first time in a step in which the other does not."""

    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4, 300))) -> tp.ListNumpy:
        y = flow.math.reduce_sum(flow.matmul(x, variable("w", (300, 300))), axis=1)
        sgd().minimize(y)
        return y

    expected = np.ones((300, 300))
    for number, rows in enumerate([(4, 4), (4, 2), (2, 4), (3, 3)]):
        fed = [np.random.default_rng([number, rank]).normal(size=(count, 300)).astype(np.float32) for rank, count in enumerate(rows)]
        for got, x in zip(train(fed), fed):
            np.testing.assert_allclose(got, (x @ expected).sum(1), rtol=1e-3, atol=1e-2)
        expected = expected - RATE * sum(x.mean(0) for x in fed)[:, None]
        np.testing.assert_allclose(values("w")[0], expected, rtol=1e-4, atol=1e-4)


def test_accumulation_clipping_loss_scale_and_shared_states_do_what_they_do_elsewhere():
    config = mirrored()
    config.train.num_gradient_accumulation_steps(2)
    config.optimizer_placement_optimization_mode("distributed_split")
    config.optimizer_placement_optimization_threshold(1)

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.ListNumpy.Placeholder((2, 3))) -> tp.ListNumpy:
        clip = flow.optimizer.grad_clipping.by_global_norm(0.7)
        scale = flow.optimizer.loss_scale.dynamic_loss_scale(initial_loss_scale=1024.0)
        return linear(x, sgd(momentum=0.9, grad_clipping=clip, loss_scale_policy=scale))

    expected = Linear()
    for number, rows in enumerate([(4, 4), (2, 4), (4, 2)]):
        fed = batches(*rows, seed=number)
        got = train(fed)
        assert [len(piece) for piece in got] == list(rows)
        expected.step(fed, momentum=0.9, clip=0.7)
    for got, value in zip(values("w", "b", "s"), (expected.w, expected.b, expected.s)):
        close(got, value)


def test_jobs_of_the_other_view_see_the_same_variables():
    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4,))) -> None:
        sgd().minimize(variable("w", (1,)) * x)

    @flow.global_function()
    def predict(x: tp.Numpy.Placeholder((5,))) -> tp.Numpy:
        return variable("w", (1,)) * x

    train([np.array([1, 3], np.float32), np.array([4], np.float32)])
    close(predict(np.arange(5, dtype=np.float32)), np.arange(5) * (1 - RATE * (2 + 4)))


def test_each_device_keeps_its_own_batch_statistics_and_the_first_ones_are_saved():
    @flow.global_function(type="train", function_config=mirrored())
    def train(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
        y = flow.layers.batch_normalization(x, axis=1, momentum=0.5, epsilon=1e-6, name="bn")
        sgd().minimize(y)
        return y

    @flow.global_function(function_config=mirrored())
    def means(x: tp.ListNumpy.Placeholder((1, 3))) -> tp.ListNumpy:
        return flow.layers.batch_normalization(x, axis=1, momentum=0.5, epsilon=1e-6, training=False, center=False, scale=False, name="bn")

    fed = batches(4, 3)
    for got, x in zip(train(fed), fed):
        np.testing.assert_allclose(got, (x - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)
    close(values("bn-moving_mean")[0], fed[0].mean(0) / 2)
    flow.load_variables({"bn-moving_variance": np.ones(3, np.float32)})
    for got, x in zip(means([np.zeros((1, 3), np.float32)] * 2), fed):
        close(got, [-x.mean(0) / 2])


def test_random_numbers_differ_between_devices_and_follow_from_the_seed():
    def masks():
        flow.clear_default_session()

        @flow.global_function(function_config=mirrored())
        def job(x: tp.ListNumpy.Placeholder((64,))) -> tp.ListNumpy:
            return flow.random.bernoulli(x, seed=7)

        return [piece.tolist() for _ in range(2) for piece in job([np.full(64, 0.5, np.float32)] * 2)]

    first = masks()
    assert len({tuple(mask) for mask in first}) == 4
    assert masks() == first


def test_random_numbers_that_nothing_reads():
    @flow.global_function(function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((2, 3))) -> tp.ListNumpy:
        flow.random.bernoulli(x)
        return x

    assert [piece.tolist() for piece in job([X, X])] == [X.tolist()] * 2


def test_on_one_device_both_views_are_the_same():
    def trained(config):
        flow.clear_default_session()
        flow.config.cpu_device_num(1)

        @flow.global_function(type="train", function_config=config)
        def train(x: tp.ListNumpy.Placeholder((4, 3))) -> tp.ListNumpy:
            return linear(flow.nn.dropout(flow.cast_to_current_logical_view(x), 0.5), sgd())

        losses = [train(batches(rows))[0].tolist() for rows in (4, 2)]
        return losses, [value.tolist() for value in values("w", "b", "s")]

    assert trained(mirrored()) == trained(flow.function_config())


def test_a_copy_on_one_of_several_devices_is_as_on_one_alone():
    config = mirrored()
    config.default_placement_scope(flow.scope.placement("cpu", "0:1"))

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.ListNumpy.Placeholder((4, 3))):
        return linear(x, sgd())

    expected, (fed,) = Linear(), batches(3)
    result = train([fed]).get()
    close(result, expected.losses(fed))
    assert result.parallel_num() == 1
    expected.step([fed])
    close(values("w")[0], expected.w)


# -------------------------------------------------------------- data


def numbers(folder, batch_size):
    reader = flow.data.ofrecord_reader(str(folder), batch_size=batch_size)
    return flow.data.OFRecordRawDecoder(reader, "number", shape=(), dtype=flow.int32)


@pytest.fixture
def folder(tmp_path):
    records = [ofrecord.OFRecord(feature={"number": ofrecord.Feature(int32_list=ofrecord.Int32List(value=[i]))}) for i in range(8)]
    write_records(tmp_path / "part-0", records)
    return tmp_path


def test_each_device_reads_its_share_of_a_batch(folder):
    @flow.global_function(function_config=mirrored())
    def job() -> tp.ListNumpy:
        return numbers(folder, 4)

    got = [[piece.tolist() for piece in job()] for _ in range(2)]
    assert all(len(piece) == 2 for pieces in got for piece in pieces)
    assert [sorted(pieces[0] + pieces[1]) for pieces in got] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_batch_that_devices_cannot_share(folder, batch_size):
    @flow.global_function(function_config=mirrored())
    def job() -> tp.ListNumpy:
        return numbers(folder, batch_size)

    with pytest.raises(
        ArgumentError, match=f"gives batches of {batch_size}, which 2 devices cannot share evenly; choose a batch size that 2 divides"
    ):
        job()


# -------------------------------------------------------------- errors


def test_wrong_inputs_are_refused_with_their_device():
    @flow.global_function(function_config=mirrored())
    def job(x=flow.MirroredTensorDef((4, 3))):
        return x

    for value, kind, message in [
        (X, ArgumentError, r"'x' of job 'job' is a list with one entry a device \(2 here\), got ndarray"),
        ([X], ArgumentError, r"one entry a device \(2 here\), got list of 1"),
        ([X, X, X], ArgumentError, r"one entry a device \(2 here\), got list of 3"),
        ({0: X, 1: X}, ArgumentError, r"one entry a device \(2 here\), got dict"),
        ([X, 3], ArgumentError, r"'x\[1\]' of job 'job' on device 1 is a numpy array float32\(4, 3\), got int 3"),
        ([X, np.zeros((2, 3))], DTypeError, r"'x\[1\]' of job 'job' on device 1 has dtype float32, got float64"),
        ([np.zeros(3, np.float32), X], ArgumentError, r"on device 0 has shape \(4, 3\) or less of it, got \(3,\)"),
        ([X, np.zeros((5, 3), np.float32)], ArgumentError, r"on device 1 has shape \(4, 3\) or less of it, got \(5, 3\)"),
    ]:
        with pytest.raises(kind, match=message):
            job(value)
    assert job([X, X]).get().parallel_num() == 2


def test_wrong_lists_of_lists_are_refused_with_their_device():
    @flow.global_function(function_config=mirrored())
    def job(x=flow.MirroredTensorListDef((4, 3))):
        return x

    double = X.astype(np.float64)
    for value, kind, message in [
        ([[X]], ArgumentError, r"one entry a device \(2 here\), got list of 1"),
        ([X, [X]], ArgumentError, "is a list with a list of arrays for each device, got ndarray .* for device 0"),
        ([[X], []], ArgumentError, "is a list with a list of arrays for each device, got list of 0 for device 1"),
        ([[X], [X, 3]], ArgumentError, "got list of 2 for device 1"),
        (
            [[X], [X, X[:, :2]]],
            ArgumentError,
            r"joined along their first dim, which float32\(2, 3\), float32\(2, 2\) for device 1 cannot be",
        ),
        ([[X], [X, double]], ArgumentError, r"joined along their first dim, which float32\(2, 3\), float64\(2, 3\) for device 1 cannot be"),
        ([[X], [double]], DTypeError, r"'x\[1\]' of job 'job' on device 1 has dtype float32, got float64"),
        ([[X, X, X], [X]], ArgumentError, r"on device 0 has shape \(4, 3\) or less of it, got \(6, 3\)"),
    ]:
        with pytest.raises(kind, match=message):
            job(value)


def refused(body, config, kind, message, value=None):
    job = flow.global_function(function_config=config)(body)
    with pytest.raises(kind, match=message):
        job() if value is None else job(value)


def test_one_array_is_no_input_of_a_mirrored_job():
    def body(x: tp.Numpy.Placeholder((2, 3))):
        return x

    refused(
        body,
        mirrored(),
        JobError,
        r"mirrored view on 2 devices, .* FixedTensorDef\(\(2, 3\), .*\) is one array; declare it with flow.Mirrored",
        X,
    )


@pytest.mark.parametrize("annotation", [tp.Numpy, Tuple[tp.ListNumpy, tp.Numpy], tp.Callback[tp.Numpy]])
def test_one_array_is_no_result_of_a_mirrored_job(annotation):
    def body(x=flow.MirroredTensorDef((2, 3))):
        return (x, x) if annotation == Tuple[tp.ListNumpy, tp.Numpy] else x

    body.__annotations__["return"] = annotation
    refused(
        body,
        mirrored(),
        JobError,
        "has a result of its own, but it is annotated to give tp.Numpy, one array; annotate tp.ListNumpy",
        [X, X],
    )


def test_a_list_is_no_input_of_a_consistent_job():
    def body(x=flow.MirroredTensorDef((2, 3))):
        return x

    refused(
        body,
        flow.function_config(),
        JobError,
        "consistent view on 2 devices, .* has one entry a device; declare it with flow.FixedTensorDef",
        [X, X],
    )


@pytest.mark.parametrize("view, config", [(flow.scope.consistent_view, mirrored()), (flow.scope.mirrored_view, flow.function_config())])
def test_a_job_has_one_view_on_several_devices(view, config):
    def body():
        with view():
            return variable("w", (2,)) + 1

    refused(body, config, UnsupportedError, "view inside job 'body', .* works on one device only, and the job runs on 2; set one view")


def test_a_mirrored_job_has_one_placement():
    def body():
        with flow.scope.placement("cpu", "0:0"):
            one = variable("w", (2,)) + 1
        with flow.scope.placement("cpu", "0:1"):
            return one * 2

    refused(
        body,
        mirrored(),
        UnsupportedError,
        "in the mirrored view, in which every device runs all of its ops, but they are placed on .* use one",
    )


def test_variables_of_a_mirrored_job_are_whole():
    def body():
        return flow.get_variable("w", (4,), initializer=flow.ones_initializer(), distribute=flow.distribute.split(0)) + 1

    refused(
        body,
        mirrored(),
        UnsupportedError,
        r"variable 'w' lies as S\(0\) on \[0-1\], but job 'body' is in the mirrored view and needs it whole",
    )


def test_a_rate_that_each_device_would_compute_for_itself():
    config = mirrored()

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.ListNumpy.Placeholder((2, 3))) -> None:
        flow.math.reduce_mean(x, name="rate")
        flow.optimizer.SGD(flow.optimizer.CustomScheduler("rate/out"), momentum=0).minimize(x * variable("w", (3,)))

    with pytest.raises(
        UnsupportedError, match="CustomScheduler takes its rate from a blob, of which each device has its own in the mirrored view"
    ):
        job([X, X])
