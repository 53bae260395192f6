"""Tracebacks of users' errors: their own lines, none of ours."""

from __future__ import annotations

import traceback

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import (
    ArgumentError,
    CheckpointError,
    GraphError,
    JobError,
    OutsideJobError,
    RunError,
    is_our_file,
)
from oneflow.engine.core.tracebacks import entry


def caught(kind: type[Exception], call) -> Exception:
    """The error of a call, as a program would catch it."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def lines_of(error: BaseException) -> list[str]:
    """The source lines of a traceback below ``caught``; every one of this file."""
    frames = traceback.extract_tb(error.__traceback__)
    assert {frame.filename for frame in frames} == {__file__}
    return [frame.line for frame in frames][1:]


def wrong_job():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return helper(x)

    def helper(x):
        return flow.matmul(x, x)  # the product

    return job


ZEROS = np.zeros((2, 3), np.float32)


def test_an_error_in_a_body_shows_the_call_and_the_lines_of_the_body():
    job = wrong_job()
    error = caught(ArgumentError, lambda: job(ZEROS))
    assert lines_of(error) == [
        "error = caught(ArgumentError, lambda: job(ZEROS))", "return helper(x)", "return flow.matmul(x, x)  # the product",
    ]  # fmt: skip
    assert str(error).startswith(f"{__file__}:")


def test_the_whole_traceback_is_there_when_asked_for(monkeypatch):
    monkeypatch.setenv("ONEFLOW_TRACEBACK", "full")
    job = wrong_job()
    error = caught(ArgumentError, lambda: job(ZEROS))
    assert any(is_our_file(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def test_an_error_of_the_users_own_code_loses_our_frames_and_keeps_its_libraries():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        np.testing.assert_equal(1, 2)
        return x

    error = caught(AssertionError, lambda: job(ZEROS))
    names = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert names[:3] == [__file__] * 3 and "numpy" in names[3] and not any(map(is_our_file, names))


def test_an_error_of_a_handler_is_the_handlers():
    def handler(value):
        raise KeyError("mine")

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        flow.watch(x, handler)
        return x

    assert lines_of(caught(KeyError, lambda: job(ZEROS)))[-1] == 'raise KeyError("mine")'


def test_an_error_that_our_code_does_not_expect_keeps_its_frames(monkeypatch):
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        return x

    monkeypatch.setattr("oneflow.engine.job.job.Signature", None)
    error = caught(TypeError, lambda: job(ZEROS))
    assert any(is_our_file(frame.filename) for frame in traceback.extract_tb(error.__traceback__))


def test_the_error_that_one_came_from_stays_without_our_frames():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,), dtype=flow.int32), table: tp.Numpy.Placeholder((3, 2))) -> tp.Numpy:
        return flow.gather(table, x)

    error = caught(RunError, lambda: job(np.array([0, 7], np.int32), np.zeros((3, 2), np.float32)))
    assert lines_of(error) == [
        "error = caught(RunError, lambda: job(np.array([0, 7], np.int32), np.zeros((3, 2), np.float32)))"
    ]
    assert isinstance(error.__cause__, (IndexError, RuntimeError)) and error.__cause__.__traceback__ is None
    assert "direct cause" in "".join(traceback.format_exception(error))


def test_an_error_under_way_stays_the_context_of_the_next():
    def call():
        try:
            raise KeyError("first")
        except KeyError:
            flow.checkpoint.get("nowhere")

    error = caught(CheckpointError, call)
    assert isinstance(error.__context__, KeyError)
    assert [frame.line for frame in traceback.extract_tb(error.__context__.__traceback__)] == [
        'raise KeyError("first")'
    ]


def test_a_graph_shows_the_call_and_the_line_of_build():
    class Wrong(flow.nn.Graph):
        def build(self, x):
            return self.refused(x)

        def refused(self, x):
            raise ValueError("mine")

    graph = Wrong()
    assert lines_of(caught(ValueError, lambda: graph(torch.zeros(2)))) == [
        "assert lines_of(caught(ValueError, lambda: graph(torch.zeros(2)))) == [", "return self.refused(x)", 'raise ValueError("mine")',
    ]  # fmt: skip

    class NotMade(flow.nn.Graph):
        def __init__(self):
            pass

    lazy = NotMade()
    assert len(lines_of(caught(GraphError, lambda: lazy(torch.zeros(2))))) == 1


def test_an_op_on_global_tensors_shows_the_line_that_calls_it():
    split = torch.zeros(2, 3).to_global(flow.placement("cpu", ranks=[0]), flow.sbp.broadcast)
    error = caught(RuntimeError, lambda: torch.nn.functional.linear(split, torch.zeros(4, 3)))
    assert len(lines_of(error)) == 1 and "local" in str(error)


@pytest.mark.parametrize(
    "kind, call",
    [
        (CheckpointError, lambda: flow.checkpoint.get("nowhere")),
        (ArgumentError, lambda: flow.save(1, 2)),
        (JobError, lambda: flow.train.CheckPoint().init()),
        (ArgumentError, lambda: flow.global_function(type="learn")),
        (ArgumentError, lambda: flow.plan(print)),
        (OutsideJobError, lambda: flow.get_variable("w", (2,))),
        (RuntimeError, lambda: torch.zeros(2).to_global(sbp=flow.sbp.broadcast)),
    ],
    ids=["get", "save", "init", "decorator", "plan", "op", "to_global"],
)
def test_other_calls_show_the_callers_line(kind, call):
    assert len(lines_of(caught(kind, call))) == 1


def test_a_public_function_stays_itself():
    def function(a: int, *, b: str = "x") -> float:
        """What it does."""

    assert (entry(function).__name__, entry(function).__doc__) == ("function", "What it does.")
    assert entry(function).__wrapped__ is function
