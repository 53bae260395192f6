"""The networks of examples/cnns in ONNX Runtime: the logits of the job, from weights as training leaves them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from example_programs import MODELS, Options, used

import oneflow as flow


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
def test_a_network_gives_the_same_logits_in_onnx_runtime(name, tmp_path):
    size = MODELS[name].smallest

    @flow.global_function(type="predict")
    def job(images=flow.FixedTensorDef((2, 3, size, size))):
        return MODELS[name].logits(images, Options(num_classes=10))

    rng = np.random.default_rng(0)
    flow.load_variables({key: used(rng, key, value.numpy()) for key, value in flow.get_all_variables().items()})
    flow.onnx.export(job, None, tmp_path / "net.onnx")
    report = flow.onnx.check_equality(job, tmp_path / "net.onnx", rtol=1e-4, atol=1e-4)
    assert [difference.is_close for difference in report.differences] == [True]
    names = {tensor.name for tensor in onnx.load(tmp_path / "net.onnx").graph.initializer}
    assert names >= set(flow.get_all_variables())
