"""What a job of the mirrored view refuses."""

from __future__ import annotations

from typing import Tuple

import numpy as np
import pytest
from mirrored_jobs import X, mirrored, variable

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import ArgumentError, DTypeError, JobError, UnsupportedError


@pytest.fixture(autouse=True)
def two_devices():
    flow.config.cpu_device_num(2)


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
        (
            [X, np.zeros((5, 3), np.float32)],
            ArgumentError,
            r"on device 1 has shape \(4, 3\) or less of it, got \(5, 3\)",
        ),
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
        (
            [[X], [X, double]],
            ArgumentError,
            r"joined along their first dim, which float32\(2, 3\), float64\(2, 3\) for device 1 cannot be",
        ),
        ([[X], [double]], DTypeError, r"'x\[1\]' of job 'job' on device 1 has dtype float32, got float64"),
        ([[X, X, X], [X]], ArgumentError, r"on device 0 has shape \(4, 3\) or less of it, got \(6, 3\)"),
    ]:
        with pytest.raises(kind, match=message):
            job(value)


def refused(body, config, kind, message, value=None):
    job = flow.global_function(function_config=config)(body)
    with pytest.raises(kind, match=message):
        job() if value is None else job(value)


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


@pytest.mark.parametrize(
    "view, config", [(flow.scope.consistent_view, mirrored()), (flow.scope.mirrored_view, flow.function_config())]
)
def test_a_job_has_one_view_on_several_devices(view, config):
    def body():
        with view():
            return variable("w", (2,)) + 1

    refused(
        body,
        config,
        UnsupportedError,
        "view inside job 'body', .* works on one device only, and the job runs on 2; set one view",
    )


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
        return (
            flow.get_variable("w", (4,), initializer=flow.ones_initializer(), distribute=flow.distribute.split(0)) + 1
        )

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
        UnsupportedError,
        match="CustomScheduler takes its rate from a blob, of which each device has its own in the mirrored view",
    ):
        job([X, X])
