"""Jobs on workers take kernels of clusters as one device does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oneflow as flow
import oneflow.typing as tp
from oneflow.core.fusion_setting import compiler

SHAPE = (256, 128)


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_two_workers_compile_a_kernel_once_and_later_ones_find_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    wanted = F.gelu(torch.from_numpy(x) * 2.0 + 1.0).numpy()
    for tier in ("wait", "later"):
        flow.clear_default_session()
        flow.config.cpu_device_num(2)
        config = flow.function_config()
        config.fusion(tier)

        @flow.global_function(function_config=config)
        def job(x: tp.Numpy.Placeholder(SHAPE)) -> tp.Numpy:
            return flow.math.gelu(x * 2.0 + 1.0)

        for _ in range(3):
            assert np.allclose(job(x), wanted, atol=1e-5)
        assert len(list((tmp_path / "oneflow-torch" / "kernels").glob("*.kernel"))) == 1
