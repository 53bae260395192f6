"""Tiers of fusion: when kernels of clusters are taken, where they come from, and what is the same in all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fusion_net import SIZE, Train, batch, clusters
from warm_python import WARM

import oneflow as flow
import oneflow.typing as tp
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.core.fusion_setting import compiler

compiles = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


def trained(graph: Train, steps: range) -> list[torch.Tensor]:
    for number in steps:
        graph(batch(number))
    return [parameter.detach().clone() for parameter in graph.net.to(nn.Module).parameters()]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.delenv("ONEFLOW_FUSION", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A cache with the kernels of a step of ``Train``."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        graph = Train("wait")
        graph(batch(0))
        torch.set_num_threads(threads)
    assert clusters(graph).taken_at == 0 and len(kernels(cache)) == 2
    return cache


@pytest.fixture
def cache(compiled, tmp_path, monkeypatch) -> Path:
    """One's own copy of it."""
    shutil.copytree(compiled / "oneflow-torch", tmp_path / "oneflow-torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def kernels(cache: Path) -> list[Path]:
    return sorted((cache / "oneflow-torch" / "kernels").glob("*.kernel"))


@pytest.fixture
def compiling_is_an_error(monkeypatch):
    monkeypatch.setattr("oneflow.engine.passes.clusters.kernel_workers.subprocess.Popen", None)


# ------------------------------------------------------------------ wait


@compiles
def test_kernels_agree_with_the_ops_gradients_included(cache, compiling_is_an_error):
    for one, wanted in zip(trained(Train("wait"), range(3)), trained(Train("off"), range(3))):
        torch.testing.assert_close(one, wanted, rtol=1e-5, atol=1e-5)


@compiles
@pytest.mark.parametrize("tier", ["off", "native", "wait"])
def test_a_resumed_run_equals_one_that_was_never_stopped(tier, cache, compiling_is_an_error):
    first = Train(tier)
    trained(first, range(2))
    second = Train(tier)
    second.load_state_dict(first.state_dict())
    assert all(map(torch.equal, trained(second, range(2, 4)), trained(first, range(2, 4))))


@compiles
def test_the_code_of_a_step_tells_the_ops_of_its_clusters(cache, compiling_is_an_error):
    graph = Train("wait")
    graph(batch(0))
    (step,) = graph._compiled.values()
    assert "# aten.add.Tensor, aten.native_layer_norm.default, aten.gelu.default" in step.executor.source


@compiles
def test_inputs_that_lie_otherwise_are_computed_by_the_ops(cache, compiling_is_an_error):
    graphs = [Train("wait"), Train("off")]
    for graph in graphs:
        graph(batch(0))
    assert graphs[0](batch(1).t()).item() == pytest.approx(graphs[1](batch(1).t()).item(), abs=1e-5)


# ------------------------------------------------------------------ later


@compiles
def test_later_runs_at_once_and_takes_over_between_two_steps_what_is_not_forged(cache):
    """Of two kernels one is there, the other was put there by somebody else."""
    forged = kernels(cache)[0]
    content = bytearray(forged.read_bytes())
    content[32:] = content[32:].replace(b"def call(", b"open('/forged')#(", 1)
    forged.write_bytes(content)
    graph = Train("later")
    graph(batch(0))
    assert clusters(graph).taken_at is None
    clusters(graph).wait()
    assert clusters(graph).taken_at is None  # between two steps, not before
    after = trained(graph, range(1, 4))
    assert clusters(graph).taken_at == 1 and clusters(graph).are_ready()
    assert b"/forged" not in forged.read_bytes()  # it was compiled anew
    for one, wanted in zip(after, trained(Train("off"), range(4))):
        torch.testing.assert_close(one, wanted, rtol=1e-5, atol=1e-5)


@compiles
def test_the_next_process_has_kernels_at_once(cache):
    program = f"""
    import sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import torch
    torch.set_num_threads(1)
    import oneflow.engine.passes.clusters.kernel_workers as workers
    workers.subprocess = None  # nothing can be compiled
    from fusion_net import Train, batch, clusters
    graph = Train()
    graph(batch(0))
    print(clusters(graph).taken_at, clusters(graph)._fusion.tier)
    """
    environment = {**os.environ, "ONEFLOW_FUSION": "later"}
    done = subprocess.run(
        [*WARM.command(), "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "0 later\n", done.stderr


# ------------------------------------------------------------------ where nothing can be compiled


def test_without_a_compiler_there_is_one_notice_and_no_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    graph = Train("wait")
    with pytest.warns(
        UserWarning,
        match="fusion 'wait' needs a C\\+\\+ compiler, and 'no-such-compiler' is not on the PATH: steps run with 'native' fusion",
    ) as told:
        graph(batch(0))
    assert clusters(graph) is None and len(told) == 1 and not list(tmp_path.iterdir())


class OneCluster(nn.Graph):
    """For which one process compiles."""

    def __init__(self):
        super().__init__()
        self.config.set_fusion("wait")

    def build(self, x):
        return F.gelu(x * 2.0 + 1.0)


@pytest.mark.slow
def test_a_compiler_that_fails_leaves_the_ops(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", shutil.which("false") or "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(UserWarning, match="runs a cluster on torch's own ops, its kernel could not be compiled"):
        found = OneCluster()(batch(0))
    torch.testing.assert_close(found, F.gelu(batch(0) * 2.0 + 1.0))


def test_a_folder_that_cannot_be_trusted_leaves_the_ops(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", shutil.which("true") or "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "oneflow-torch").mkdir()
    (tmp_path / "oneflow-torch" / "kernels").symlink_to(tmp_path)
    graph = Train("later")
    with pytest.warns(UserWarning, match="runs without kernels of clusters: .* is not a folder of this user"):
        found = graph(batch(0)).item()
    assert found == Train("off")(batch(0)).item()


# ------------------------------------------------------------------ settings


def test_other_words_are_errors():
    with pytest.raises(
        ArgumentError, match="fusion is one of 'off', 'native', 'wait', 'later', got 'wiat'. Did you mean 'wait'"
    ):
        Train("wiat")
    with pytest.raises(ArgumentError, match="fusion is one of 'off', 'native', 'wait', 'later', got True"):
        flow.function_config().fusion()


@compiles
@pytest.mark.slow
def test_a_job_says_its_tier(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = flow.function_config()
    config.fusion("wait")

    @flow.global_function(function_config=config)
    def job(x: tp.Numpy.Placeholder((SIZE, SIZE))) -> tp.Numpy:
        return flow.math.gelu(x * 2.0 + 1.0)

    x = batch(0).numpy()
    assert np.allclose(job(x), F.gelu(batch(0) * 2.0 + 1.0).numpy(), atol=1e-5)
    assert len(kernels(tmp_path)) == 1


# ------------------------------------------------------------------ checkpoints


def test_a_state_notes_its_tier_and_another_one_gives_a_notice():
    state = Train("off").state_dict()
    Train("off").load_state_dict(state)
    with pytest.warns(
        UserWarning, match="was saved by steps of fusion 'off' and goes on with 'native': values agree but for rounding"
    ) as told:
        Train().load_state_dict(state)
    assert len(told) == 1
    with pytest.warns(UserWarning, match="was saved by steps of fusion 'native' and goes on with 'off'"):
        Train("off").load_state_dict(Train().state_dict())


def test_a_checkpoint_of_jobs_notes_the_tier(tmp_path):
    def train(tier: str | None):
        flow.clear_default_session()
        config = flow.function_config()
        if tier is not None:
            config.fusion(tier)

        @flow.global_function(type="train", function_config=config)
        def job(x: tp.Numpy.Placeholder((4,))) -> tp.Numpy:
            w = flow.get_variable("w", (4,), initializer=flow.ones_initializer())
            flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0).minimize(x * w)
            return x * w

        job(np.ones(4, np.float32))

    train("off")
    flow.train.CheckPoint().save(str(tmp_path / "kept"))
    flow.train.CheckPoint().load(str(tmp_path / "kept"))
    train(None)
    with pytest.warns(
        UserWarning, match="job 'job' was saved by steps of fusion 'off' and goes on with 'native'"
    ) as told:
        flow.train.CheckPoint().load(str(tmp_path / "kept"))
    assert len(told) == 1
