"""``flow.watch`` and ``flow.watch_diff``, and eager execution, which runs the body at every call."""

import numpy as np
import pytest
from small_jobs import array, train_config, value, weight

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import JobError, UnsupportedError
from oneflow.engine.job.result import ResultArray


def test_watch_hands_out_every_value(capsys):
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        def typed(got: tp.Numpy):
            seen.append(("numpy", type(got), got.tolist()))

        def listed(got: tp.ListNumpy):
            seen.append(("list", type(got), got[0].tolist()))

        flow.watch(x * 2, lambda got: seen.append(("result", type(got), got.tolist())))
        flow.watch(x, typed)
        flow.watch(x, listed)
        flow.watch([x, x + 1], lambda a, b: seen.append(("two", a.tolist(), b.tolist())))
        flow.watch(x, "prompt:")
        flow.watch(x)

    for start in (0, 1):
        job(array(start, 5))
    assert seen == [
        line
        for s in (0, 1)
        for line in [
            ("result", ResultArray, [2 * s, 10]),
            ("numpy", np.ndarray, [s, 5]),
            ("list", list, [s, 5]),
            ("two", [s, 5], [s + 1, 6]),
        ]
    ]
    assert capsys.readouterr().out == "prompt: [0. 5.]\n[0. 5.]\nprompt: [1. 5.]\n[1. 5.]\n"


def test_watch_diff_is_the_gradient_of_the_scaled_sum():
    seen = {}
    config = train_config()
    config.train.loss_scale_factor(4)

    @flow.global_function(config)
    def job(x=flow.FixedTensorDef((3,))):
        w = weight(2.0)
        y = w * x
        flow.watch_diff(y, lambda got: seen.__setitem__("y", got.tolist()))
        flow.watch_diff(x, lambda got: seen.__setitem__("x", got.tolist()))
        flow.losses.add_loss(y * y)

    job(array(1, 2, 3))
    assert seen == {"y": [16, 32, 48], "x": [32, 64, 96]}
    np.testing.assert_allclose(value(), [2 - 0.1 * np.mean([4, 16, 36])], rtol=1e-5)


def test_watch_handlers_have_run_before_the_call_returns():
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        flow.watch(x, lambda got: seen.append(got.item()))
        return x

    future = job(array(3))
    assert seen == [3]
    future.get()


def test_eager_execution_runs_the_body_at_every_call():
    assert not flow.eager_execution_enabled()
    flow.enable_eager_execution(True)
    assert flow.eager_execution_enabled()
    calls = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        calls.append(1)
        return x + len(calls)

    assert [job(array(0)).get().item() for _ in range(3)] == [1, 2, 3]


def test_eager_execution_trains_as_lazy_execution_does():
    def train():
        @flow.global_function(train_config())
        def job(x=flow.FixedTensorDef((2,))):
            loss = weight() * weight() * x
            flow.losses.add_loss(loss)
            return loss

        for i in range(3):
            job(array(i, 2)).get()
        return value()

    lazy = train()
    flow.clear_default_session()
    flow.enable_eager_execution()
    np.testing.assert_array_equal(train(), lazy)


def test_eager_execution_takes_a_changed_rate():
    flow.enable_eager_execution()
    rates = [0.1, 0.5, 0.5]

    @flow.global_function(type="train")
    def job():
        schedule = flow.optimizer.PiecewiseConstantScheduler([], [rates.pop(0)])
        flow.optimizer.SGD(schedule, momentum=0).minimize(weight() * 1)

    for expected in (0.9, 0.4, -0.1):
        job()
        np.testing.assert_allclose(value(), [expected], rtol=1e-5)


def test_eager_execution_watches_with_the_handler_of_this_call():
    flow.enable_eager_execution()
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        mine = []
        seen.append(mine)
        flow.watch(x, lambda got: mine.append(got.item()))

    job(array(1))
    job(array(2))
    assert seen == [[1], [2]]


def test_eager_execution_watches_what_was_not_watched_before():
    flow.enable_eager_execution()
    calls, seen = [], []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        calls.append(1)
        if len(calls) == 2:
            flow.watch(x, lambda got: seen.append(got.item()))

    for i in range(3):
        job(array(i))
    assert seen == [1]


def test_eager_bodies_see_the_values_of_blobs():
    flow.enable_eager_execution()
    flow.train.CheckPoint().init()
    seen = []

    @flow.global_function("train")
    def job(x=flow.FixedTensorDef((2, 8))):
        w = flow.get_variable("w", (8, 8), initializer=flow.random_normal_initializer())
        y = flow.nn.dropout(flow.layers.batch_normalization(flow.matmul(x, w), momentum=0.0, name="norm"), 0.5)
        seen.append((w.numpy(), y.numpy(), flow.argwhere(y).numpy(), y.numpy_list()[0]))
        if y.numpy().sum() > 1e6:
            y = y * 0.0  # never: the body decides by values
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(y)
        return y, flow.identity(w)

    for step in range(3):
        y, w = job(np.random.RandomState(step).rand(2, 8).astype(np.float32)).get()
        for found, expected in zip(seen[-1], (w, y, np.argwhere(y), y)):
            np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
    assert len(seen) == 3 and not np.array_equal(seen[0][0], seen[1][0])


def test_blobs_have_no_values_where_bodies_run_once_or_read_first(tmp_path):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1,))):
        return x if x.numpy()[0] else x + 1.0

    with pytest.raises(
        JobError,
        match=r"numpy\(\) of blob .*: it has no value while the job is traced.* flow.enable_eager_execution\(\)",
    ):
        job(array(1))
    flow.clear_default_session()
    flow.enable_eager_execution()

    @flow.global_function()
    def reads():
        return (flow.data.decode_random((3,), flow.float32, name="batch") * 2.0).numpy()

    with pytest.raises(
        UnsupportedError,
        match="is made of what 'batch' reads, which comes when the step runs, after the body; return the blob",
    ):
        reads()


def test_looking_at_a_value_moves_no_statistics():
    flow.enable_eager_execution()

    @flow.global_function("train")
    def job(x=flow.FixedTensorDef((4, 1))):
        y = flow.layers.batch_normalization(x, momentum=0.5, name="norm")
        counter = flow.get_variable("counter", (1,), initializer=flow.zeros_initializer(), trainable=False)
        raised = flow.assign(counter, counter + 1.0)
        assert y.numpy().shape == (4, 1) and raised.numpy()[0] == 1
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(y)

    job(np.float32([[1], [2], [3], [6]]))
    found = flow.get_all_variables()
    assert found["norm-moving_mean"].numpy().tolist() == [1.5] and found["counter"].numpy().tolist() == [1]
