"""Where the readers among a graph's modules stand, as part of the graph's state: JSON as uint8 numbers, as in
checkpoints of jobs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from oneflow.engine.checkpoint.positions import PREFIX, parsed, written
from oneflow.engine.core.errors import DataError, GraphError
from oneflow.engine.data.source import Source

if TYPE_CHECKING:
    from oneflow.engine.graph.compiled import CompiledStep


def name_of(kind: str) -> str:
    """The key in the state of a graph of this class."""
    return PREFIX + kind


def sources_in(modules: Mapping[str, nn.Module]) -> dict[str, Source]:
    """The data modules that stand somewhere in their data, by path; one that has several has the first."""
    found: dict[Source, str] = {}
    for prefix, module in modules.items():
        for path, inner in module.named_modules(prefix=prefix):
            if isinstance(inner, Source):
                found.setdefault(inner, path)
    return {path: source for source, path in found.items()}


def positions(modules: Mapping[str, nn.Module], steps: Iterable[CompiledStep]) -> Tensor | None:
    """Where the readers stand after the batches that steps have used; None without readers."""
    unused: dict[Source, dict[str, Any]] = {}
    for step in steps:
        unused = {**step.sources.before, **unused}
    states = {
        path: unused[source] if source in unused else source.state() for path, source in sources_in(modules).items()
    }
    return torch.from_numpy(written(states).copy()) if states else None


def load_positions(graph: str, name: str, modules: Mapping[str, nn.Module], given: Tensor | None, strict: bool) -> None:
    """Takes each reader to where it was when the state was taken. Without ``strict`` one whose position is missing, or
    belongs to other data, stays where it is."""
    sources = sources_in(modules)
    if given is None:
        if sources and strict:
            raise GraphError(
                f"{graph}: the state has no {name!r}, the positions of {', '.join(sources)}; strict=False leaves them "
                f"where they are"
            )
        return
    states = parsed(name, given.cpu().numpy())
    for path, source in sources.items():
        try:
            source.load_state(states.get(path, {}))
        except DataError as error:
            if strict:
                raise GraphError(
                    f"{graph}: {path!r} cannot go on where it was: {error}. strict=False leaves it where it is"
                ) from error
            warnings.warn(f"{graph}: {path!r} stays where it is: {error}", stacklevel=4)
