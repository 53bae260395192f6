"""What a job's view asks of its inputs and results where it runs on several devices. On one device both views are the
same."""

from __future__ import annotations

from typing import Any, get_args

from oneflow.engine.core.errors import JobError, UnsupportedError
from oneflow.engine.core.tree import tree_leaves
from oneflow.engine.job.traced import Traced
from oneflow.typing import Numpy


def check_view(job: Traced) -> None:
    """Refuses inputs, results and scopes that do not fit the view of a job on several devices."""
    graph = job.graph
    devices = {device for placement, _ in job.placements() for device in placement.devices}
    if len(devices) == 1:
        return
    if graph.other_view is not None:
        mine, other = ("mirrored", "consistent") if graph.is_mirrored else ("consistent", "mirrored")
        raise UnsupportedError(
            f"{graph.other_view}: a {other} view inside job {job.name!r}, which is in the {mine} view, works on one "
            f"device only, and the job "
            f"runs on {len(devices)}; set one view for the job with default_logical_view"
        )
    if graph.is_mirrored:
        _check_mirrored(job, len(devices))
    else:
        _check_consistent(job, len(devices))


def _check_mirrored(job: Traced, devices: int) -> None:
    view = f"{job.line}: job {job.name!r} is in the mirrored view on {devices} devices"
    if _mentions_numpy(job.returns):
        raise JobError(
            f"{view}, each of which has a result of its own, but it is annotated to give tp.Numpy, one array; annotate "
            f"tp.ListNumpy"
        )


def _check_consistent(job: Traced, devices: int) -> None:
    for definition in tree_leaves(job.signature.defs):
        if definition.kind != "array":
            raise JobError(
                f"{job.line}: job {job.name!r} is in the consistent view on {devices} devices, which share a batch "
                f"out, but its input "
                f"{definition!r} has one entry a device; declare it with flow.FixedTensorDef or tp.Numpy.Placeholder, "
                f"or choose the mirrored "
                "view with default_logical_view"
            )


def _mentions_numpy(annotation: Any) -> bool:
    return annotation is Numpy or any(_mentions_numpy(part) for part in get_args(annotation))
