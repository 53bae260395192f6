"""Automatic mixed precision: float32 variables, reduced computation where it is safe, and steps that overflow left
out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import oneflow as flow
from oneflow.engine.capture.precision import half_nodes
from oneflow.engine.ir.notes import op_note

opt = flow.optimizer
NORMAL = flow.random_normal_initializer(stddev=0.2)
SCALE = "System-Train-DynamicLossScale-job-LossScale"
STEP = "System-Train-TrainStep-job"


def network(x: Any) -> Any:
    x = flow.layers.conv2d(x, 6, 3, padding="SAME", use_bias=False, kernel_initializer=NORMAL, name="conv1")
    x = flow.nn.relu6(flow.layers.batch_normalization(x, axis=1, name="bn"), name="relu6")
    x = flow.layers.conv2d(x, 8, 3, padding="SAME", use_bias=False, kernel_initializer=NORMAL, name="conv2")
    return flow.layers.dense(flow.reshape(x, (4, -1)), 5, kernel_initializer=NORMAL, name="fc")


def train_job(mixed: bool = True, **policy: Any) -> Any:
    config = flow.function_config()
    config.enable_auto_mixed_precision(mixed)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.FixedTensorDef((4, 3, 6, 6)), y=flow.FixedTensorDef((4,), dtype=flow.int32)):
        logits = network(x)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits, name="loss")
        opt.SGD(opt.PiecewiseConstantScheduler([], [0.05]), momentum=0.9, **policy).minimize(loss)
        return {
            "loss": loss,
            "mean": flow.math.reduce_mean(logits),
            "predictions": flow.nn.softmax(logits, name="softmax"),
        }

    return job


def batch(scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return (scale * rng.normal(size=(4, 3, 6, 6))).astype(np.float32), np.array([0, 1, 2, 3], np.int32)


def variables() -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


def half_names(job: Any) -> set[str]:
    if job.job.graph is None:
        job.job.trace()
    return {op_note(node).name for node in half_nodes(job.job.graph)}


def test_variables_and_optimizer_state_stay_float32_masters():
    job = train_job()
    for _ in range(3):
        job(*batch()).get()
    floats = {name: value.dtype for name, value in variables().items() if not name.startswith("System-")}
    assert len(floats) > 8 and set(floats.values()) == {np.dtype(np.float32)}


def test_a_master_takes_up_steps_that_half_precision_would_lose():
    """bfloat16 cannot tell 1 from 1.001; sixteen such steps in a float32 master are 1.016."""
    config = flow.function_config()
    config.enable_auto_mixed_precision(True)

    @flow.global_function(type="train", function_config=config)
    def job(x=flow.FixedTensorDef((1, 1))):
        w = flow.get_variable("w", (1, 1), initializer=flow.ones_initializer())
        opt.SGD(opt.PiecewiseConstantScheduler([], [0.001]), momentum=0).minimize(flow.math.negative(flow.matmul(x, w)))

    for _ in range(16):
        job(np.ones((1, 1), np.float32))
    np.testing.assert_allclose(variables()["w"], 1.016, rtol=1e-5)


def test_white_ops_run_in_bfloat16_and_losses_and_reductions_do_not():
    job = train_job()
    results = job(*batch()).get()
    assert {name: value.dtype for name, value in results.items()} == dict.fromkeys(results, np.dtype(np.float32))
    half = half_names(job)
    assert {"conv1", "bn", "relu6", "conv2", "fc"} <= half
    assert not half & {"loss", "softmax"} and not any("ReduceMean" in name or "Mean" in name for name in half)


class Spy(TorchDispatchMode):
    """Notes the dtypes of the tensors that each aten op is given, under the op's name."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: dict[str, set[torch.dtype]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = {arg.dtype for arg in args if isinstance(arg, torch.Tensor)}
        self.dtypes.setdefault(func._schema.name.removeprefix("aten::"), set()).update(found)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("mixed", "low"), [(True, torch.bfloat16), (False, torch.float32)])
def test_the_ops_that_a_step_runs_get_these_dtypes(mixed, low):
    job = train_job(mixed)
    job(*batch()).get()
    with Spy() as spy:
        job(*batch()).get()
    for op in ("convolution", "convolution_backward", "addmm", "mm", "hardtanh_"):
        assert spy.dtypes[op] == {low}, op
    for op in ("_log_softmax", "_softmax", "clamp"):
        assert spy.dtypes[op] == {torch.float32}, op
    assert spy.dtypes["native_batch_norm"] == {low, torch.float32}, "statistics and scales are float32"


def test_a_static_loss_scale_changes_nothing_that_counts():
    job = train_job()
    plain = [job(*batch()).get()["loss"].mean() for _ in range(4)]
    flow.clear_default_session()
    job = train_job(loss_scale_policy=opt.loss_scale.static_loss_scale(128.0))
    scaled = [job(*batch()).get()["loss"].mean() for _ in range(4)]
    np.testing.assert_allclose(scaled, plain, rtol=1e-2)
    assert plain[-1] < plain[0]


def test_a_step_that_overflows_is_left_out_and_halves_the_scale():
    job = train_job(loss_scale_policy=opt.loss_scale.dynamic_loss_scale(2.0**10, increment_period=2))
    job(*batch()).get()
    before = variables()
    assert before[SCALE] == 2.0**10
    job(np.full((4, 3, 6, 6), np.inf, np.float32), batch()[1]).get()
    after = variables()
    assert (after[SCALE], after[STEP]) == (2.0**9, 2)
    moving = {"bn-moving_mean", "bn-moving_variance"}  # of the forward pass, as everywhere
    for name in before.keys() - moving:
        if not name.startswith("System-"):
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_the_scale_grows_after_its_period_of_good_steps():
    job = train_job(loss_scale_policy=opt.loss_scale.dynamic_loss_scale(2.0**10, increment_period=2))
    scales = []
    for _ in range(4):
        job(*batch()).get()
        scales.append(float(variables()[SCALE][0]))
    assert scales == [2.0**10, 2.0**11, 2.0**11, 2.0**12]


def test_mixed_precision_on_the_cpu_is_told_once_on_stderr(capsys):
    job = train_job()
    for _ in range(2):
        job(*batch()).get()
    told = capsys.readouterr()
    line = "oneflow: job 'job' uses mixed precision on the CPU, as bfloat16: right, but slower than float32\n"
    assert told.err.count(line) == 1 and told.out == ""


@pytest.mark.parametrize("between", ["relu", "relu6"])
def test_a_selection_between_convolutions_does_not_go_back_to_float32(between):
    @flow.global_function()
    def job(x=flow.FixedTensorDef((1, 2, 4, 4))):
        x = flow.layers.conv2d(x, 2, 1, kernel_initializer=NORMAL, name="before")
        x = getattr(flow.nn, between)(x, name="between")
        return flow.layers.conv2d(x, 2, 1, kernel_initializer=NORMAL, name="after")

    assert half_names(job) == {"before", "between", "after"}
