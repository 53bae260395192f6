"""Workers keep as many programs of a job as the driver does."""

from __future__ import annotations

import numpy as np

import oneflow as flow
from oneflow.engine.job.function import default_session


def test_workers_forget_programs_too() -> None:
    flow.config.cpu_device_num(2)
    config = flow.function_config()
    config.shapes_kept(1)

    @flow.global_function(function_config=config)
    def job(x=flow.input_blob_def((8,), is_dynamic=True)):  # type: ignore[no-untyped-def]
        return flow.math.relu(x)

    for rows in (2, 4, 2):
        assert job(np.ones(rows, np.float32)).get().numpy().tolist() == [1.0] * rows
    driver = default_session().backend.driver  # type: ignore[union-attr]
    assert driver.cluster.broadcast("program_count", what="counting programs") == [1, 1]
