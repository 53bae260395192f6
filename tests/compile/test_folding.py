"""What a predict job makes of its variables once: normalised filters, oneDNN's layout of them, and whatever else
depends on variables alone."""

from __future__ import annotations

import threading
from collections import Counter as Counts
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from one_rank import prepare_graph, program_for, run_step, session_variables, step_graph
from torch import fx

import oneflow as flow
from oneflow.engine.core.errors import RunError
from oneflow.engine.job.local import LocalJob, LocalProgram
from oneflow.engine.program.program import Program
from oneflow.engine.step.executor import Executor, StepNumbers

aten, mkldnn = torch.ops.aten, torch.ops.mkldnn
NORMAL = flow.random_normal_initializer(stddev=0.5)
SHAPE = (2, 4, 7, 7)
onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")

Net = Callable[..., Any]


@pytest.fixture
def by_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kernels of the package's own extension, which go before oneDNN's."""
    monkeypatch.setenv("ONEFLOW_FUSION", "off")


def conv(x, filters: int = 6, name: str = "conv", **more: Any):
    given: dict[str, Any] = {
        "padding": "SAME",
        "kernel_initializer": NORMAL,
        "bias_initializer": NORMAL,
        "use_bias": False,
    }
    return flow.layers.conv2d(x, filters, 3, name=name, **(given | more))


def bn(x, name: str = "bn", axis: int = 1, **more: Any):
    """With statistics as a trained net has them."""
    numbers = {"beta_initializer": NORMAL, "moving_mean_initializer": NORMAL}
    scales = dict.fromkeys(
        ("gamma_initializer", "moving_variance_initializer"), flow.random_uniform_initializer(0.3, 2.0)
    )
    return flow.layers.batch_normalization(x, axis, training=False, name=name, **(numbers | scales | more))


def predict_job(net: Net, shape: tuple[int, ...] = SHAPE, **settings: bool):
    config = flow.function_config()
    for name, value in settings.items():
        getattr(config, name)(value)

    @flow.global_function(function_config=config)
    def job(x=flow.FixedTensorDef(shape)):
        return net(x)

    flow.get_all_variables()
    return job.job


def compiled(job, keeps_values: bool = True, shape: tuple[int, ...] = SHAPE) -> Program:
    return program_for(job.graph, [torch.zeros(shape)], job.settings.mixed_precision, keeps_values)


def run(program: Program, x: torch.Tensor) -> list[torch.Tensor]:
    return run_step(program, [x])


def programs_of(job: Callable[..., Any]) -> list[LocalProgram]:
    opened = job.job.opened
    assert isinstance(opened, LocalJob)
    return list(opened.programs.by_shapes.values())


def images(shape: tuple[int, ...] = SHAPE) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def targets(graph: fx.Graph | None) -> Counts[Any]:
    assert graph is not None
    return Counts(node.target for node in graph.nodes if node.op == "call_function")


def same_values(net: Net, shape: tuple[int, ...] = SHAPE, **settings: bool) -> Program:
    """The program of a net; what it gives is what it gives when it keeps nothing, within the rounding of float32."""
    job = predict_job(net, shape, **settings)
    plain = compiled(job, False, shape)
    program = compiled(job, True, shape)
    assert prepare_graph(plain) is None
    expected, got = run(plain, images(shape)), run(program, images(shape))
    for one, other in zip(expected, got, strict=True):
        largest = float(one.abs().max())
        assert largest > 0.1 and one.stride() == other.stride()
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5 * largest)
    return program


def shortcut_added(x):
    return flow.nn.relu(bn(conv(x, 4)) + x)


def two_branches(x):
    return flow.nn.relu(bn(conv(x, name="a"), "bn_a") + bn(conv(x, name="b"), "bn_b"))


def residual(x):
    """The sum may be written over the shortcut, which nothing reads again."""
    y = flow.nn.relu(bn(conv(x, 4, "stem"), "bn_stem"))
    return flow.nn.relu(bn(conv(flow.nn.relu(conv(y, 4, "a")), 4, "b"), "bn_b") + y)


def shared_weights(x):
    w = flow.get_variable("w", (4, 4, 3, 3), initializer=NORMAL)
    y = bn(flow.nn.conv2d(x, w, 1, "SAME", name="first"), "one")
    return bn(flow.nn.conv2d(y, w, 1, "SAME", name="second"), "two")


FOLDED = {
    "plain": lambda x: bn(conv(x)),
    "relu": lambda x: flow.nn.relu(bn(conv(x))),
    "relu6": lambda x: flow.nn.relu6(bn(conv(x))),
    "bias": lambda x: bn(conv(x, use_bias=True)),
    "no gamma": lambda x: bn(conv(x), scale=False),
    "no beta": lambda x: bn(conv(x), center=False),
    "groups": lambda x: bn(conv(x, 8, groups=2)),
    "depthwise": lambda x: bn(conv(x, 4, groups=4)),
    "strides": lambda x: bn(conv(x, strides=2)),
    "dilation": lambda x: bn(conv(x, dilation_rate=2, padding="VALID")),
    "add": lambda x: bn(conv(x, 4)) + x,
    "add and relu": shortcut_added,
    "two branches": two_branches,
    "residual": residual,
    "shared weights": shared_weights,
    "then a pool": lambda x: flow.nn.max_pool2d(flow.nn.relu(bn(conv(x))), 3, 2, "SAME"),
    "then flat": lambda x: flow.layers.dense(
        flow.reshape(bn(conv(x)), (2, -1)), 3, kernel_initializer=NORMAL, name="fc"
    ),
}


@pytest.mark.parametrize("net", FOLDED.values(), ids=FOLDED)
def test_folding_keeps_every_value(net):
    program = same_values(net)
    assert aten.native_batch_norm.default not in targets(step_graph(program))
    step_graph(program).lint()


def test_a_folded_normalisation_of_channels_last_images():
    def net(x):
        y = bn(conv(x, data_format="NHWC"), axis=3)
        return bn(conv(flow.nn.relu(y), name="next", data_format="NHWC"), "bn_next", axis=3)

    program = same_values(net, (2, 7, 7, 4))
    assert aten.native_batch_norm.default not in targets(step_graph(program))


@pytest.mark.parametrize("size", [6, 7])
def test_same_padding_that_is_more_on_one_side(size):
    same_values(lambda x: bn(conv(x, strides=2)), (2, 4, size, size))


@onednn
@pytest.mark.usefixtures("by_onednn")
def test_filters_are_laid_out_once():
    program = same_values(residual)
    assert targets(prepare_graph(program))[mkldnn._reorder_convolution_weight.default] == 3
    assert mkldnn._reorder_convolution_weight.default not in targets(step_graph(program))
    assert aten.convolution.default not in targets(step_graph(program))


@onednn
@pytest.mark.usefixtures("by_onednn")
def test_a_residual_is_added_by_the_convolution_in_the_memory_of_the_shortcut():
    counts = targets(step_graph(same_values(residual)))
    assert counts[mkldnn._convolution_pointwise_.binary] == 1 and aten.add.Tensor not in counts


@onednn
@pytest.mark.usefixtures("by_onednn")
def test_a_shortcut_that_is_read_again_is_not_written_over():
    def net(x):
        y = flow.math.tanh(conv(x, 4, "stem"))
        return bn(conv(y, 4)) + y, flow.math.exp(y)

    counts = targets(step_graph(same_values(net)))
    assert counts[mkldnn._convolution_pointwise.binary] == 1 and mkldnn._convolution_pointwise_.binary not in counts


def test_a_convolution_that_is_read_elsewhere_is_left_alone():
    def net(x):
        y = conv(x)
        return bn(y), flow.nn.relu(y)

    assert targets(step_graph(same_values(net)))[aten.native_batch_norm.default] == 1


def test_a_convolution_whose_filters_come_with_each_step_is_left_alone():
    def sliced(x):
        filters = flow.slice(flow.reshape(x, (14, 4, 7, 1)), [0, 0, 0, 0], [14, 4, 3, 1])
        return bn(flow.nn.conv2d(x, filters, 1, "VALID", name="conv"))

    counts = targets(step_graph(same_values(sliced)))
    assert counts[aten.native_batch_norm.default] == 1 and counts[aten.convolution.default] == 1


def test_statistics_of_the_batch_are_not_folded():
    @flow.global_function(type="train")
    def job(x=flow.FixedTensorDef(SHAPE)):
        y = flow.layers.batch_normalization(conv(x), 1, name="bn")
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(
            flow.math.reduce_mean(y)
        )
        return y

    flow.get_all_variables()
    program = compiled(job.job)
    assert prepare_graph(program) is None and program.writes


def test_a_channel_that_never_varied_and_is_switched_off_stays_off():
    zeros = flow.zeros_initializer()
    job = predict_job(
        lambda x: bn(conv(x), gamma_initializer=zeros, moving_variance_initializer=zeros, beta_initializer=zeros)
    )
    program = compiled(job)
    assert not run(program, images())[0].any()


def test_not_a_number_stays_not_a_number():
    job = predict_job(residual)
    program = compiled(job)
    given = images()
    given[1, 2, 3, 4] = float("nan")
    out = run(program, given)[0]
    assert out[1].isnan().any() and not out[0].isnan().any()


def test_mixed_precision_casts_filters_once(capsys):
    job = predict_job(lambda x: flow.nn.relu(bn(conv(x))), enable_auto_mixed_precision=True)
    plain, program = compiled(job, False), compiled(job)
    assert targets(step_graph(plain))[aten._to_copy.default] > targets(step_graph(program))[aten._to_copy.default]
    assert torch.equal(run(program, images())[0], run(plain, images())[0])


# ------------------------------------------------------------------------------------------------ what is kept


def test_a_failing_convolution_still_names_its_op_and_line():
    job = predict_job(lambda x: flow.nn.relu(bn(conv(x, name="the_conv"))))
    program = compiled(job)
    with pytest.raises(RunError, match=r"op 'the_conv'.*test_folding\.py:\d+"):
        run(program, torch.zeros(2, 3, 7, 7))


def test_what_depends_on_variables_alone_leaves_the_step():
    def net(x):
        w = flow.get_variable("w", SHAPE, initializer=NORMAL)
        return x * flow.math.tanh(w * 2.0)

    program = same_values(net)
    assert targets(step_graph(program)) == {aten.mul.Tensor: 1}
    assert targets(prepare_graph(program)) == {aten.mul.Tensor: 1, aten.tanh.default: 1}


def test_a_value_larger_than_its_variables_is_made_by_the_step():
    def net(x):
        column = flow.get_variable("column", (400, 1), initializer=NORMAL)
        row = flow.get_variable("row", (1, 400), initializer=NORMAL)
        return flow.matmul(x, flow.math.exp(column) * row)

    program = same_values(net, (2, 400))
    assert targets(prepare_graph(program)) == {aten.exp.default: 1}


def test_a_result_is_never_a_kept_value():
    def net(x):
        w = flow.get_variable("w", (3,), initializer=NORMAL)
        return w * 2.0, flow.math.reduce_sum(x)

    job = predict_job(net)
    program = compiled(job)
    executor = Executor(program, session_variables())
    first = run_step(program, [images()], executor)[0]
    kept = first.clone()
    with torch.inference_mode():
        first.zero_()
    assert torch.equal(run_step(program, [images()], executor)[0], kept)


def test_a_job_without_variables_is_one_graph():
    assert prepare_graph(compiled(predict_job(lambda x: x * 2.0))) is None


def test_what_a_job_assigns_to_is_read_by_each_step():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        flow.assign(w, w * 2.0)
        return flow.math.exp(w) * x

    given = np.ones(2, np.float32)
    np.testing.assert_allclose([job(given).get()[0] for _ in range(3)], np.exp([1.0, 2.0, 4.0]), rtol=1e-6)


# ------------------------------------------------------------------------------------------- when it is made anew


class Prepared:
    """Counts how often the job called ``predict`` prepares."""

    def __init__(self, job: Callable[..., Any], *inputs: np.ndarray) -> None:
        job(*inputs).get()
        (program,) = programs_of(job)
        codes = program.executor.code
        code, self.count = codes["prepare"], 0

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return code.call(*arguments)

        codes["prepare"] = replace(code, call=counted)


def jobs():
    """A train job and a predict job of one net."""

    @flow.global_function(type="train")
    def train(x=flow.FixedTensorDef(SHAPE)):
        y = flow.layers.batch_normalization(conv(x), 1, name="bn")
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(
            flow.math.reduce_mean(y * y * y)
        )

    @flow.global_function()
    def predict(x=flow.FixedTensorDef(SHAPE)):
        return flow.nn.relu(flow.layers.batch_normalization(conv(x), 1, training=False, name="bn"))

    return train, predict


def by_hand(x: np.ndarray) -> np.ndarray:
    """What ``predict`` gives, from the variables as the session has them."""
    v = {name: torch.from_numpy(variable.numpy()) for name, variable in flow.get_all_variables().items()}
    y = torch.conv2d(torch.from_numpy(x), v["conv-weight"], padding=1)
    statistics = (v["bn-moving_mean"], v["bn-moving_variance"], v["bn-gamma"], v["bn-beta"])
    return torch.relu(torch.nn.functional.batch_norm(y, *statistics, eps=0.001)).numpy()


def test_it_is_made_anew_when_variables_change_and_only_then():
    train, predict = jobs()
    x = images().numpy()
    prepared = Prepared(predict, x)
    for _ in range(3):
        predict(x).get()
    assert prepared.count == 0
    for changes in range(1, 4):
        train(x)
        train(x)
        for _ in range(2):
            np.testing.assert_allclose(predict(x).get(), by_hand(x), rtol=1e-4, atol=1e-5)
        assert prepared.count == changes


def test_it_is_made_anew_after_loading_and_initialising(tmp_path):
    train, predict = jobs()
    x = images().numpy()
    train(x)
    saved = predict(x).get()
    flow.train.CheckPoint().save(str(tmp_path / "saved"))
    prepared = Prepared(predict, x)
    flow.train.CheckPoint().init()
    drawn = predict(x).get()
    assert not np.allclose(drawn, saved) and prepared.count == 1
    np.testing.assert_allclose(drawn, by_hand(x), rtol=1e-4, atol=1e-5)
    flow.train.CheckPoint().load(str(tmp_path / "saved"))
    np.testing.assert_array_equal(predict(x).get(), saved)
    flow.load_variables({"bn-beta": np.full(6, 3.0, np.float32)})
    np.testing.assert_allclose(predict(x).get(), by_hand(x), rtol=1e-4, atol=1e-5)
    assert prepared.count == 3


def test_it_is_made_anew_after_another_job_has_assigned():
    @flow.global_function()
    def double(x=flow.FixedTensorDef((1,))):
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        flow.assign(w, w * 2.0)
        return x

    @flow.global_function()
    def predict(x=flow.FixedTensorDef((2,))):
        return flow.math.exp(flow.get_variable("w", (2,), initializer=flow.ones_initializer())) * x

    one, two = np.ones(1, np.float32), np.ones(2, np.float32)
    prepared = Prepared(predict, two)
    double(one).get()
    np.testing.assert_allclose(predict(two).get(), np.exp([2.0, 2.0]), rtol=1e-6)
    assert prepared.count == 1


def test_a_failed_train_step_may_have_changed_variables():
    train, predict = jobs()
    x = images().numpy()
    prepared = Prepared(predict, x)
    train(x)
    (program,) = programs_of(train)
    predict(x).get()
    with pytest.raises(RunError, match="job 'train' failed"):
        program.executor.run(StepNumbers(1, (0.1,), 1.0), [[torch.zeros(1, 1)]])
    predict(x).get()
    assert prepared.count == 2


def test_threads_that_prepare_at_once_each_read_what_they_made():
    _, predict = jobs()
    x = images().numpy()
    expected = predict(x).get().numpy().copy()
    (program,) = programs_of(predict)
    codes, together = program.executor.code, threading.Barrier(2, timeout=60)
    code = codes["prepare"]

    def at_once(*arguments: Any) -> Any:
        together.wait()
        made = code.call(*arguments)
        together.wait()
        return made

    codes["prepare"] = replace(code, call=at_once)
    session_variables().version += 1
    with ThreadPoolExecutor(2) as threads:
        for result in threads.map(lambda _: predict(x).get().numpy(), range(2)):
            np.testing.assert_array_equal(result, expected)


def test_a_job_of_dynamic_inputs_holds_no_second_net():
    @flow.global_function()
    def predict(x=flow.MirroredTensorDef((4, 4, 7, 7))):
        return bn(conv(x))

    predict([images()[:1].numpy()]).get()
    predict([images().numpy()]).get()
    assert len(programs_of(predict)) == 2
    assert all("prepare" not in program.executor.code for program in programs_of(predict))
