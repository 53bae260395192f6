"""Jobs on workers take kernels of clusters as one device does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.fusion_setting import compiler
from oneflow.engine.job.function import default_session

SHAPE = (256, 128)


def scaled(x):
    return flow.math.gelu(x * 2.0 + 1.0)


def later(view):
    flow.clear_default_session()
    flow.config.cpu_device_num(2)
    config = flow.function_config()
    config.fusion("later")
    config.default_logical_view(view)
    return config


def told(monkeypatch):
    """What workers are told of kernels in each step from now on: whether they take theirs over."""
    cluster, said = default_session().backend.driver.cluster, []
    broadcast = cluster.broadcast

    def heard(method, *arguments, what):
        said.append(arguments[4])
        return broadcast(method, *arguments, what=what)

    monkeypatch.setattr(cluster, "broadcast", heard)
    return said


def have_kernels(folder):
    """Of each worker whether it has loaded kernels from a folder."""
    pids = default_session().backend.driver.cluster.pids
    return [str(folder) in Path(f"/proc/{pid}/maps").read_text() for pid in pids]


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_two_workers_compile_a_kernel_once_and_take_it_over_at_the_same_step(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    wanted = F.gelu(torch.from_numpy(x) * 2.0 + 1.0).numpy()
    config = later(flow.scope.consistent_view())
    config.fusion("wait")

    @flow.global_function(function_config=config)
    def waits(x: tp.Numpy.Placeholder(SHAPE)) -> tp.Numpy:
        return scaled(x)

    for _ in range(2):
        assert np.allclose(waits(x), wanted, atol=1e-5)
    assert len(list((tmp_path / "oneflow-torch" / "kernels").glob("*.kernel"))) == 1

    @flow.global_function(function_config=later(flow.scope.consistent_view()))
    def comes(x: tp.Numpy.Placeholder(SHAPE)) -> tp.Numpy:
        return scaled(x)

    assert np.allclose(comes(x), wanted, atol=1e-5) and have_kernels(tmp_path) == [False, False]
    said = told(monkeypatch)
    assert np.allclose(comes(x), wanted, atol=1e-5) and said == [True] and have_kernels(tmp_path) == [True, True]

    @flow.global_function(function_config=later(flow.scope.mirrored_view()))
    def mirrored(x=flow.MirroredTensorDef(SHAPE)):
        return scaled(x)

    def step(rows):
        first, second = mirrored([x[:128], x[-rows:]]).get().numpy_list()
        assert np.allclose(first, wanted[:128], atol=1e-5) and np.allclose(second, wanted[-rows:], atol=1e-5)
        return first

    by_ops = step(128)
    said = told(monkeypatch)
    (program,) = mirrored.job.opened._programs.by_shapes.values()
    program.unready.add(1)  # as if its kernel were not there: rank 0, which has its own, waits
    step(128)
    assert said == [False] and have_kernels(tmp_path) == [False, False]
    by_kernels = step(128)
    assert said == [False, True] and have_kernels(tmp_path) == [True, True]
    assert not np.array_equal(by_ops, by_kernels)  # they round otherwise
    assert np.array_equal(
        step(192), by_ops
    )  # rank 1 runs another program, whose kernel is yet to come: rank 0 does without its own
    assert np.array_equal(step(128), by_kernels)
