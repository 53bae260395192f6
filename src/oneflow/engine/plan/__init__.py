"""Plans: what a job or a graph costs each rank and what it communicates, without starting anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oneflow.engine.core.collector import paused
from oneflow.engine.core.errors import ArgumentError, JobError
from oneflow.engine.core.placement import Placement
from oneflow.engine.core.tracebacks import entry
from oneflow.engine.job.job import Job
from oneflow.engine.plan.devices import device_axes, placement_of

if TYPE_CHECKING:
    from oneflow.engine.plan.report import Plan

__all__ = ["plan", "plan_job"]


@entry
def plan(
    job: Callable[..., Any],
    *inputs: Any,
    devices: int | tuple[int, ...] | str | None = None,
    placement: Any = None,
    **named: Any,
) -> Plan:
    """The plan of a job or of a graph: operations, bytes communicated and peak memory of each rank, and every op with
    its SBP and boxing.

    ``job`` is the decorated function. It is traced, its variables get no values, and nothing is run. It is planned for
    the placement that it has; ``devices`` plans it for as many others instead, such as 1024, "8x128" or (8, 128), where
    the first of several axes is that of the machines; ``placement`` for what ``flow.scope.placement`` gives. Ops that
    stand under a scope in the job stay where it says, and the batch stays as declared; notes of the plan tell what
    follows from that. ``print`` shows a plan, ``save("plan.html")`` writes it, also as .txt and .json.

    ``flow.plan(graph, *inputs, **named)`` is the plan of an ``nn.Graph`` whose step takes these inputs. One of global
    tensors is planned on their placements, which in a ``flow.planned_world(size)`` are any. One of local tensors is
    planned on one device, or on ``devices``, each with a part of the batch and all variables, but for what ZeRO shares
    out; or as auto parallel finds.
    """
    if hasattr(job, "plan_step"):
        if devices is not None and placement is not None:
            raise ArgumentError("flow.plan takes devices or a placement, got both")
        kind = "gpu" if any(getattr(one, "is_cuda", False) for one in (*inputs, *named.values())) else "cpu"
        return job.plan_step(
            inputs, _given(placement) if devices is None else placement_of(kind, device_axes(devices)), named
        )
    if named:
        raise ArgumentError(
            f"flow.plan of a job takes devices= or placement=, got {', '.join(named)}; inputs by name are those of an "
            f"nn.Graph"
        )
    if inputs:  # a job's devices and placement may be given by position
        devices, placement = (*inputs, *(value for value in (devices, placement) if value is not None), None)[:2]
    found = getattr(job, "job", None)
    if not isinstance(found, Job):
        raise ArgumentError(
            f"flow.plan takes a function that @flow.global_function decorated, or an nn.Graph, got {job!r}"
        )
    if devices is not None and placement is not None:
        raise ArgumentError("flow.plan takes devices or a placement, got both")
    return plan_job(found, None if devices is None else device_axes(devices), _given(placement))


def _given(placement: Any) -> Placement | None:
    where = getattr(placement, "placement", placement)
    if where is not None and not isinstance(where, Placement):
        raise ArgumentError(f"the placement of a plan is made by flow.scope.placement(...), got {placement!r}")
    return where


def plan_job(job: Job, axes: tuple[int, ...] | None = None, placement: Placement | None = None) -> Plan:
    """The plan of a job on its own devices, on devices of its own type with these axes, or on a placement."""
    job.session.trace()
    if job.session.current(job.name) is not job:
        raise JobError(f"job {job.name!r} of {job.line} was replaced by another definition of that name; plan that one")
    assert job.graph is not None and job.graph.placement is not None
    if axes is not None:
        placement = placement_of(job.graph.placement.device_type, axes)
    with job.session.making, paused():
        from oneflow.engine.plan.make import make_plan  # loads torch's tracing, which importing oneflow should not

        return make_plan(job.graph, job.settings, placement or job.graph.placement)
