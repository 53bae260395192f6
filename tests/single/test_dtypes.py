"""dtypes are torch's: what users pass to jobs and tensors, and what blobs, inputs and variables tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oneflow as flow

DTYPES = {
    **{
        "bool": torch.bool,
        "char": torch.int8,
        "int8": torch.int8,
        "uint8": torch.uint8,
        "int": torch.int32,
        "int32": torch.int32,
    },
    **{
        "long": torch.int64,
        "int64": torch.int64,
        "half": torch.float16,
        "float16": torch.float16,
        "bfloat16": torch.bfloat16,
    },
    **{"float": torch.float32, "float32": torch.float32, "double": torch.float64, "float64": torch.float64},
}


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_is_torchs(name):
    assert getattr(flow, name) is DTYPES[name] and name in flow.__all__


def test_blobs_inputs_and_variables_tell_torchs_dtype(tmp_path):
    definition = flow.FixedTensorDef((2,), dtype=flow.float64)
    assert definition.dtype is torch.float64

    @flow.global_function()
    def job(x=definition):
        variable = flow.get_variable("v", (2,), flow.float64, flow.ones_initializer())
        assert x.dtype is variable.dtype is torch.float64 and x.dtype == flow.double
        return flow.cast(x * variable, flow.int32)

    assert job(np.array([1.0, 2.0])).get().dtype == np.int32
    assert flow.get_all_variables()["v"].dtype is torch.float64
    flow.checkpoint.save(tmp_path / "saved")
    assert flow.checkpoint.get(tmp_path / "saved")["v"].dtype is torch.float64


@pytest.mark.parametrize("given", [torch.float16, "float16", np.float16, np.dtype("float16")])
def test_a_job_takes_a_dtype_as_torch_numpy_or_by_name(given):
    assert flow.FixedTensorDef((2,), given).dtype is torch.float16


def test_a_dtype_that_blobs_cannot_have_is_refused_by_name():
    with pytest.raises(
        NotImplementedError, match="blobs cannot have the torch dtype torch.bool; there are .*'float32'"
    ):
        flow.FixedTensorDef((2,), flow.bool)
