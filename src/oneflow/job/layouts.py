"""Spreads a session over workers: which rank keeps which part of the variables, and reads which share of the data.

Imported when a session has several devices: it needs the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oneflow.compiler.distribute import Surroundings, declared_feeds, distribute_job
from oneflow.compiler.mirror import mirrored_mesh
from oneflow.compiler.pipeline import feed_nodes
from oneflow.compiler.readers import shares_of
from oneflow.compiler.storage import state_layouts, variable_layouts
from oneflow.ir.graph import Graph, Reader
from oneflow.job.views import check_view
from oneflow.runtime.driver import Driver, RemoteReader, RemoteVariables
from oneflow.runtime.handler import Opened
from oneflow.sharding.mesh import Layout

if TYPE_CHECKING:
    from oneflow.job.job import Job


def spread(job: Job, driver: Driver, store: RemoteVariables) -> None:
    """Gives the variables of a traced job that have none a layout, and every rank its share of the job's readers.

    What the ranks have of an earlier trace or definition of that name, they forget: neither its programs nor its readers may serve this one.
    """
    graph = job.graph
    assert graph is not None
    check_view(job)
    job.copies = mirrored_mesh(graph, driver.ranks).size if graph.is_mirrored else None
    for name, layout in job_layouts(job, driver.ranks, store.layouts).items():
        store.layouts.setdefault(name, layout)
    driver.unload(job.name)
    driver.open(job.name, _shares(graph, driver))


def job_layouts(job: Job, ranks: dict[tuple[int, int], int], known: dict[str, Layout]) -> dict[str, Layout]:
    """The layout of every variable of a job and of the state its training keeps; those that are known stay."""
    graph = job.graph
    assert graph is not None
    found = {**variable_layouts(graph, ranks), **{name: known[name] for name in graph.variables if name in known}}
    if any(sbp.kind == "auto" for layout in found.values() for sbp in layout.sbp):
        around = Surroundings(ranks, found, declared_feeds(graph, job.device), job.device, job.settings.mixed_precision)
        found = distribute_job(graph, around).layouts
    if graph.training is not None:
        found = {**found, **state_layouts(graph, graph.training.optimizer, found)}
    return found


def _shares(graph: Graph, driver: Driver) -> list[list[Opened]]:
    """For each rank its share of every source: rows of the batch where the batch is split, all of it where it is not."""
    numbers = {node: i for i, node in enumerate(feed_nodes(graph))}
    shares: list[list[Opened]] = [[] for _ in range(driver.world.size)]
    for source, nodes in graph.sources:
        mesh, count = shares_of(graph, source, nodes, driver.ranks)
        for position, rank in enumerate(mesh.ranks):
            shares[rank].append(Opened(source, tuple(numbers[node] for node in nodes), position if count > 1 else 0, count))
    return shares


def remote_readers(job: Job, driver: Driver) -> dict[str, Reader]:
    """The readers of a job that runs on workers, by name."""
    graph = job.graph
    assert graph is not None
    meshes = {source: shares_of(graph, source, nodes, driver.ranks)[0] for source, nodes in graph.sources}
    return {source.name: RemoteReader(driver, job.name, source, mesh.ranks[0]) for source, mesh in meshes.items()}
