"""A job with dynamic shapes keeps a limited number of compiled programs."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np

import oneflow as flow
from oneflow.engine.job.programs import Programs


def test_the_least_recently_used_program_is_dropped() -> None:
    dropped: list[str] = []
    programs: Programs[str] = Programs(threading.RLock(), 2, dropped.append)
    for size in (1, 2, 1, 3):
        assert programs.of(((size,),), partial("program {}".format, size)) == f"program {size}"
    assert dropped == ["program 2"]
    assert list(programs.by_shapes) == [((1,),), ((3,),)]


def test_a_job_keeps_as_many_programs_as_its_configuration_says() -> None:
    config = flow.function_config()
    config.shapes_kept(2)

    @flow.global_function(function_config=config)
    def job(x=flow.input_blob_def((8,), is_dynamic=True)):  # type: ignore[no-untyped-def]
        return flow.math.relu(x)

    for rows in (1, 2, 3, 4, 1):
        assert job(-np.ones(rows, np.float32)).get().numpy().tolist() == [0.0] * rows
    assert list(job.job.opened.programs.by_shapes) == [((4,),), ((1,),)]  # type: ignore[union-attr]
