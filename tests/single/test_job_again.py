"""Jobs that are defined, traced or opened again, and what is left of those before them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import oneflow as flow
from oneflow.engine.core.errors import JobError
from oneflow.engine.job.local import LocalJob

X = np.ones(2, np.float32)


def line_of(job: Callable[..., Any]) -> str:
    return job.job.line


def test_a_call_of_a_definition_long_gone_names_the_one_there_is() -> None:
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):  # type: ignore[no-untyped-def]
        return x

    first = job

    @flow.global_function()  # type: ignore[no-redef]
    def job(x=flow.FixedTensorDef((2,))):  # type: ignore[no-untyped-def]
        return x * 2.0

    @flow.global_function()  # type: ignore[no-redef]
    def job(x=flow.FixedTensorDef((2,))):  # type: ignore[no-untyped-def]
        return x * 3.0

    with pytest.raises(JobError, match="was replaced by another definition at") as caught:
        first(X)
    assert str(caught.value).endswith(line_of(job))


def test_an_eager_job_that_cannot_be_opened_says_so_each_time_and_runs_again_when_it_can() -> None:
    flow.enable_eager_execution(True)
    wide = [False]

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):  # type: ignore[no-untyped-def]
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer())
        if wide[0]:
            with flow.scope.placement("cpu", "0:0-1"):
                return x * w
        return x + w

    np.testing.assert_array_equal(job(X).get(), X + 1)
    wide[0] = True
    for _ in range(2):
        with pytest.raises(JobError, match="a job on several devices comes too late"):
            job(X)
    wide[0] = False
    np.testing.assert_array_equal(job(X).get(), X + 1)


@pytest.mark.parametrize("reads", [False, True])
def test_programs_go_with_their_session_and_not_when_the_collector_comes(reads: bool) -> None:
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):  # type: ignore[no-untyped-def]
        w = flow.get_variable("w", (2, 3), initializer=flow.ones_initializer())
        batch = flow.data.decode_random((3,), flow.float32, batch_size=2) if reads else x
        return batch * flow.math.exp(w) + x

    job(np.ones((2, 3), np.float32)).get()
    opened = job.job.opened
    assert isinstance(opened, LocalJob)
    (program,) = opened.programs.by_shapes.values()
    executor = weakref.ref(program.executor)
    del opened, program
    gc.disable()
    try:
        flow.clear_default_session()
        assert executor() is None
    finally:
        gc.enable()
