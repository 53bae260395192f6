"""The garbage collector is paused while a job is traced."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import oneflow as flow


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_of_garbage_rests_while_a_job_is_traced_and_is_left_as_it_was(is_enabled: bool) -> None:
    seen = []

    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        seen.append(gc.isenabled())
        return x

    gc.enable() if is_enabled else gc.disable()
    try:
        job(np.zeros(2, np.float32)).get()
        assert (seen, gc.isenabled()) == ([False], is_enabled)
    finally:
        gc.enable()
