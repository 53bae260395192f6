"""How a job is compiled for all ranks of a driver, and loaded there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock

import torch
from torch import fx

from oneflow.engine.assignment.distribute import Assigned, CompileTarget, declared_feeds, distribute_job, feeds_like
from oneflow.engine.assignment.storage import stored_layouts, variable_layouts
from oneflow.engine.capture.joint import Like
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.ir.graph import Reader
from oneflow.engine.job.clock import step_clock
from oneflow.engine.job.traced import Traced
from oneflow.engine.lowering.groups import process_groups
from oneflow.engine.lowering.readers import shares_of
from oneflow.engine.passes.pipeline import compile_rank
from oneflow.engine.program.describe import what_of
from oneflow.engine.program.notes import layout_of, val
from oneflow.engine.program.serialize import pack
from oneflow.engine.runtime.driver.driver import Driver, Loaded, RemoteReader, RemoteVariables
from oneflow.engine.runtime.driver.lane import Field, Form
from oneflow.engine.sharding.mesh import Layout
from oneflow.engine.step.step_clock import StepClock


class Compiling:
    """How a job is compiled for the ranks of a driver, and loaded there."""

    def __init__(
        self,
        job: Traced,
        device: torch.device,
        driver: Driver,
        variables: RemoteVariables,
        host: Mapping[str, torch.Tensor],
        making: RLock,
    ) -> None:
        self.job = job
        self.device = device
        self.driver = driver
        self.making = making
        self._variables = variables
        self._host = host
        self._chosen: tuple[CompileTarget, Assigned] | None = None

    def layouts(self) -> dict[str, Layout]:
        """The layout of every variable of the job and of the state its training keeps; those that are known stay."""
        known = {name: layout for name, layout in self._variables.layouts.items() if name in self.job.graph.variables}
        declared = {**variable_layouts(self.job.graph, self.driver.ranks), **known}
        if any(sbp.kind == "auto" for layout in declared.values() for sbp in layout.sbp):
            target = self._target(declared_feeds(self.job.graph, self.device), declared)
            assigned = distribute_job(self.job.graph, target)
            declared = assigned.layouts
            self._chosen = self._target(target.feeds, declared), assigned
        return stored_layouts(self.job.graph, declared)

    def _target(self, feeds: list[Like], layouts: Mapping[str, Layout]) -> CompileTarget:
        return CompileTarget(
            self.driver.ranks, layouts, feeds, self.device, self.job.settings.mixed_precision, self.job.settings.fusion
        )

    def assigned(self, inputs: Sequence[torch.Tensor], share: int = 0, shares: int = 1) -> Assigned:
        """The job for one micro-batch of these inputs, and of what readers give: one of so many ``shares`` of a
        batch."""
        layouts = {name: self._variables.layouts[name] for name in self.job.graph.variables}
        target = self._target(feeds_like(self.job.graph, inputs, self.device, share, shares), layouts)
        chosen, self._chosen = self._chosen, None
        if chosen is not None and chosen[0] == target:
            return chosen[1]  # layouts were chosen for these very shapes
        return distribute_job(self.job.graph, target)

    def load(self, assigned: Assigned, inputs: int) -> Loaded:
        """Has every rank load its program of a job of so many inputs."""
        keeps_values = not self.job.signature.is_dynamic
        programs = [compile_rank(assigned, rank, keeps_values) for rank in range(self.driver.world.size)]
        forms = [
            _form(assigned, rank, inputs, self.job.settings.micro_batches) for rank in range(self.driver.world.size)
        ]
        groups = process_groups(assigned, programs.__getitem__)
        return self.driver.load(self.job.name, [pack(program, what_of) for program in programs], groups, forms)

    def clock(self, assigned: Assigned) -> StepClock:
        return step_clock(self.job, assigned.rates(), self._host)

    def readers(self) -> Mapping[str, Reader]:
        """The readers of the job, which work on the ranks."""
        graph, ranks = self.job.graph, self.driver.ranks
        meshes = {source: shares_of(graph, source, nodes, ranks)[0] for source, nodes in graph.sources}
        return {
            source.name: RemoteReader(self.driver, self.job.name, source, mesh.ranks[0])
            for source, mesh in meshes.items()
        }

    def refresh(self, traced: Traced) -> None:
        """Goes on with other settings; the ranks forget the job's programs."""
        self.job, self._chosen = traced, None
        self.driver.unload(traced.name)


def _form(assigned: Assigned, rank: int, inputs: int, micro: int) -> Form:
    """The form of a rank's lane, for a job of so many inputs that runs in so many micro-batches."""
    fed = {i: _field(assigned.arguments["feed", i], rank) for i in range(inputs)}
    results, watched = [
        tuple(
            None if (field := _field(node, rank)) is None or not layout_of(node).is_first(rank) else (field,) * micro
            for node in nodes
        )
        for nodes in (assigned.outputs.results, assigned.outputs.watched)
    ]
    return Form(({i: field for i, field in fed.items() if field is not None},) * micro, results, watched)


def _field(node: fx.Node, rank: int) -> Field | None:
    """A rank's part of a value; None where it has none."""
    made = val(node)
    block = layout_of(node).block(made.shape, rank)
    dtype = dtypes.from_torch(made.dtype).numpy
    assert dtype is not None
    return None if block is None else Field(tuple(part.stop - part.start for part in block), dtype)
