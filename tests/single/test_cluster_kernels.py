"""Every kind of cluster has a kernel that gives what the ops give which it stands for, gradients included."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
import torch
from cluster_cases import CASES, HALVES
from torch import fx

from oneflow.engine.core.fusion_setting import compiler
from oneflow.engine.ops.updates import update_sweeps
from oneflow.engine.passes import cluster_updates
from oneflow.engine.passes.clusters import find_clusters
from oneflow.engine.passes.clusters.cluster import Cluster, call_cluster, spec_of
from oneflow.engine.passes.clusters.find_clusters import make_clusters
from oneflow.engine.passes.clusters.kernel_store import KernelStore
from oneflow.engine.passes.clusters.kernel_workers import KernelWorkers
from oneflow.engine.passes.clusters.kernels import Request, loaded
from oneflow.engine.program.serialize import graph_of
from oneflow.engine.step.codegen import generate

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
CLOSE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def clustered(name: str) -> fx.Graph:
    graph = CASES[name].graph()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find_clusters, "BYTES", 1)
        make_clusters(graph, is_alone=True)
    return graph


def clusters_in(graph: fx.Graph) -> list[Cluster]:
    return [node.args[0] for node in graph.nodes if node.target is call_cluster]


def requests(graph: fx.Graph) -> list[Request]:
    return [Request(cluster, cluster.specs, 1) for cluster in clusters_in(graph)]


UPDATES = {
    "adam": (update_sweeps.ADAM, torch.float32),
    "lamb": (update_sweeps.LAMB_MOMENTS, torch.bfloat16),
    "rmsprop": (update_sweeps.RMSPROP_CENTERED_MOMENTUM, torch.float16),
}
"""A piece of the update of each dtype; it writes into what it is given."""
SIZE = 517


def update_request(name: str) -> Request:
    sweep, dtype = UPDATES[name]
    cluster = cluster_updates._cluster(sweep, str(dtype).removeprefix("torch."))
    return Request(cluster, tuple(map(spec_of, update_inputs(name))), 1)


def update_inputs(name: str) -> list[torch.Tensor]:
    sweep, dtype = UPDATES[name]
    torch.manual_seed(2)
    first, others = torch.randn(2, SIZE), 0.5 + 0.1 * torch.rand(sweep.tensors - 2, SIZE)
    return [*first.to(dtype), *others.to(dtype), 0.5 + 0.1 * torch.rand(sweep.numbers)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> KernelStore:
    """The kernels of all cases, compiled at once."""
    made = KernelStore(Path(tmp_path_factory.mktemp("kernels")) / "store")
    workers = KernelWorkers(made, 1, 0)  # starting one is the work of two kernels, and other tests run beside
    workers.ask([*(request for name in CASES for request in requests(clustered(name))), *map(update_request, UPDATES)])
    failed = []
    while not workers.are_done:
        failed += [answer.failed for answer in workers.answers(None) if answer.failed]
    assert not failed
    return made


@pytest.mark.parametrize("name", CASES)
def test_nothing_but_clusters_and_views_is_left(name):
    graph = clustered(name)
    left = {node.target for node in graph.nodes if node.op == "call_function"} - {call_cluster, operator.getitem}
    assert clusters_in(graph) and left <= find_clusters._VIEWS


@pytest.mark.parametrize("name", CASES)
def test_without_kernels_a_cluster_is_the_ops_that_it_stands_for(name):
    case, inputs = CASES[name], CASES[name].drawn()
    made = generate(
        clustered(name),
        "step",
        lambda thing: generate(graph_of(thing.reference), "cluster").call if isinstance(thing, Cluster) else thing,
    )
    for one, wanted in zip(made.call(*inputs), case.step(*inputs), strict=True):
        assert torch.equal(one, wanted)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_gives_what_the_ops_give(name, store):
    case, inputs = CASES[name], CASES[name].drawn()
    before = [tensor.clone() for tensor in inputs]

    def bind(thing):
        if not isinstance(thing, Cluster):
            return thing
        kernel = loaded(store.get(Request(thing, thing.specs, 1).digest), store)
        assert kernel is not None, f"no kernel for {thing.ops()}"
        return kernel

    made = generate(clustered(name), "step", bind).call(*inputs)
    for one, wanted in zip(made, case.step(*inputs), strict=True):
        assert (one.dtype, one.shape, one.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
        size = max(1.0, wanted.float().abs().max().item()) if case.dtype in HALVES else 1.0
        torch.testing.assert_close(
            one,
            wanted,
            rtol=1e-5,
            atol=size * max(CLOSE[case.dtype], CLOSE[torch.bfloat16] if name.startswith("casts") else 0.0),
        )
    assert all(torch.equal(tensor, kept) for tensor, kept in zip(inputs, before))


@pytest.mark.parametrize("name", UPDATES)
def test_a_kernel_of_the_update_writes_what_the_ops_give(name, store):
    (sweep, dtype), inputs, wanted = UPDATES[name], update_inputs(name), update_inputs(name)
    kernel = loaded(store.get(update_request(name).digest), store)
    assert kernel is not None
    sums = kernel(*inputs)
    *tensors, numbers = wanted
    made = sweep.function(*(tensor.double() for tensor in tensors), numbers.double())
    for place, value in zip(sweep.writes, made):
        tensors[place] = value.to(dtype)
    for one, other in zip(
        [*inputs[:-1], *sums], [*tensors, *(one.float() for one in made[len(sweep.writes) :])], strict=True
    ):
        torch.testing.assert_close(one, other, rtol=CLOSE[dtype], atol=CLOSE[dtype])
