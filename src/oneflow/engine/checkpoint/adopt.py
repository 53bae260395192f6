"""Values from elsewhere onto the session's variables, by a table of names: all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from oneflow.engine.core.errors import ArgumentError, CheckpointError, nearest
from oneflow.engine.core.number import wholes
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.ir.notes import op_note
from oneflow.engine.job.function import default_session
from oneflow.engine.job.job import Job
from oneflow.engine.job.session import Session

Entry = str | tuple[str, Sequence[int]] | None
"""The key of a value, or the key and the order to put its dims in; None leaves the variable as it is."""

Table = Mapping[str, Entry] | Callable[[str], Entry] | None

_FILTER_ROWS = frozenset(["nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose"])
_SHOWN = 6


@dataclass(frozen=True)
class Loaded:
    """What loading came to: variables that were set, variables that no value was found for, keys that no variable
    took."""

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """Values by key and where they come from.

    ``is_ours``: we wrote them, so that every value has its variable's layout. ``extras``: keys that may be left over,
    since they are no weights.
    """

    name: str
    values: Mapping[str, torch.Tensor]
    is_ours: bool = False
    extras: frozenset[str] = frozenset()


@dataclass
class _Match:
    """Variables and values side by side, while they are found."""

    found: dict[str, torch.Tensor] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def adopt(origin: Origin, table: Table, job: Any, strict: bool, cast: bool) -> Loaded:
    """Sets the variables of the session, or of one job, from the values of ``origin``.

    Every name, shape and dtype is looked at before the first variable is written; what does not fit is told in one
    error.
    """
    session = default_session()
    session.require_jobs(f"loading {origin.name}")
    names = _variables(session, job)
    match = _matched(session, _entries(names, table), origin, cast)
    unexpected = [key for key in origin.values if key not in match.used | origin.extras]
    problems = match.problems + (_unpaired(match.missing, unexpected) if strict else [])
    if problems:
        raise CheckpointError(f"{origin.name} does not fit the variables, nothing was loaded: {'; '.join(problems)}")
    session.store.write({name: value.numpy() for name, value in match.found.items()})
    return Loaded(tuple(match.found), tuple(match.missing), tuple(unexpected))


def _variables(session: Session, job: Any) -> list[str]:
    if job is None:
        return session.model_variables()
    found = getattr(job, "job", None)
    if not isinstance(found, Job) or found.graph is None or session.jobs.get(found.name) is not found:
        raise ArgumentError(f"job is a function of this session decorated with @flow.global_function, got {job!r}")
    return list(found.graph.decls)


def _entries(names: list[str], table: Table) -> dict[str, Entry]:
    """The table's word on each variable; those that a dictionary does not name have a value of their own name."""
    if table is None:
        return {name: name for name in names}
    if callable(table):
        return {name: _entry(name, table(name)) for name in names}
    if not isinstance(table, Mapping):
        raise ArgumentError(
            f"table is a dictionary of keys by variable name, a function from one to the other or None; got {table!r}"
        )
    unknown = [name for name in table if name not in names]
    if unknown:
        raise ArgumentError(
            f"the table names the variable {unknown[0]!r}, which there is not.{nearest(str(unknown[0]), names)}"
        )
    return {name: _entry(name, table.get(name, name)) for name in names}


def _entry(name: str, entry: Any) -> Entry:
    pair = isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and wholes(entry[1]) is not None
    if entry is None or isinstance(entry, str) or pair:
        return entry
    raise ArgumentError(
        f"the table's entry of {name!r} is a key, a pair (key, order of its dims) or None; got {entry!r}"
    )


def _matched(session: Session, entries: dict[str, Entry], origin: Origin, cast: bool) -> _Match:
    last = frozenset() if origin.is_ours else _channels_last_filters(session)
    match = _Match()
    for name, entry in entries.items():
        if entry is None:
            continue
        key, perm = (entry, None) if isinstance(entry, str) else entry
        value = origin.values.get(key)
        if value is None:
            match.missing.append(name)
            continue
        match.used.add(key)
        spec = session.store.decls[name].spec
        try:
            _require_dense(value)
            match.found[name] = _typed(_laid_out(value, spec, perm, name in last), spec, cast)
        except _Misfit as misfit:
            match.problems.append(f"variable {name!r} is {spec}, {key!r} is {_described(value)}: {misfit}")
    return match


class _Misfit(Exception):
    """Why a value cannot be a variable's."""


def _require_dense(value: torch.Tensor) -> None:
    """Only plain tensors of numbers can be brought into another layout and copied."""
    if value.is_meta:
        raise _Misfit("the tensor has no values, it lies on the device 'meta'; load its weights first")
    if value.is_nested:
        raise _Misfit("the tensor is nested; give one of its tensors, or .to_padded_tensor(0)")
    if value.layout is not torch.strided:
        raise _Misfit("the tensor is sparse; call .to_dense() on it")
    if value.is_quantized:
        raise _Misfit("the tensor is quantized; call .dequantize() on it")


def _laid_out(value: torch.Tensor, spec: TensorSpec, perm: Sequence[int] | None, is_last: bool) -> torch.Tensor:
    """The value with its dims in the variable's order: the order given, or for filters of channels-last convolutions
    that of torch."""
    if perm is not None:
        if sorted(perm) != list(range(value.dim())):
            raise _Misfit(f"the order {tuple(perm)} does not name each of its {value.dim()} dims once")
        return _of_shape(value.permute(*perm), spec)
    if not is_last or value.dim() != len(spec.shape):
        return _of_shape(value, spec)
    turned = value.movedim(1, -1)
    fits = [v for v in (value, turned) if tuple(v.shape) == spec.shape]
    if len(fits) == 2 and not torch.equal(*fits):
        orders = tuple(range(value.dim())), (0, *range(2, value.dim()), 1)
        raise _Misfit(
            f"its channels may come first or last; say which in the table as (key, {orders[0]}) or (key, {orders[1]})"
        )
    return fits[0] if fits else _of_shape(value, spec)


def _of_shape(value: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    if tuple(value.shape) != spec.shape:
        turned = value.dim() == 2 and tuple(value.shape)[::-1] == spec.shape
        raise _Misfit(
            "the shapes differ" + ("; if it is the transpose, say so in the table as (key, (1, 0))" if turned else "")
        )
    return value


def _typed(value: torch.Tensor, spec: TensorSpec, cast: bool) -> torch.Tensor:
    if value.dtype != spec.dtype.torch:
        if not (cast and value.dtype.is_floating_point and spec.dtype.is_floating_point):
            can = value.dtype.is_floating_point and spec.dtype.is_floating_point
            raise _Misfit("the dtypes differ" + ("; cast=True converts it" if can else ""))
        value = value.to(spec.dtype.torch)
    return value.detach().cpu().contiguous()


def _described(value: torch.Tensor) -> str:
    shape = "..." if value.is_nested else ", ".join(map(str, value.shape))
    return f"{str(value.dtype).removeprefix('torch.')}({shape})"


def _channels_last_filters(session: Session) -> frozenset[str]:
    """The variables that convolutions read as filters with the channels last; torch and ONNX have them at dim 1."""
    nodes = [node for job in session.jobs.values() if job.graph is not None for node in job.graph.body.nodes]
    convolutions = [
        n for n in nodes if n.op == "call_function" and n.target.name in _FILTER_ROWS and n.kwargs.get("channels_last")
    ]
    return frozenset(op_note(node.args[1]).name for node in convolutions if node.args[1].op == "placeholder")


def _unpaired(missing: list[str], unexpected: list[str]) -> list[str]:
    found = []
    if missing:
        found.append(f"{len(missing)} variables have no value ({listed(missing)})")
    if unexpected:
        found.append(f"{len(unexpected)} keys have no variable ({listed(unexpected)})")
    return [*found, "give a table of keys by variable name, or strict=False to load what fits"] if found else []


def listed(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    every = list(names)
    return ", ".join(every[:_SHOWN]) + (f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else "")
