"""The plan of a job: what every op costs each rank and what is communicated, as values that print, save and load."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from oneflow.core.errors import ArgumentError
from oneflow.data.files import written_beside
from oneflow.plan.page import plan_page
from oneflow.plan.text import plan_text

FORMAT = "oneflow plan 1"


@dataclass(frozen=True)
class Traffic:
    """What one kind of collective does in a step: how often a rank takes part, and its payload in all, which ``plan.held`` defines."""

    calls: int
    bytes: int


@dataclass(frozen=True)
class RankCost:
    """One step of ranks that all cost the same; ``ranks`` is such as "0-511,768-1023" and ``count`` says how many they are."""

    ranks: str
    count: int
    flops: int
    communicated: Mapping[str, Traffic]
    peak_memory: int
    variables: int
    stage: int | None = None

    @property
    def sent(self) -> int:
        """Bytes of all collectives together."""
        return sum(traffic.bytes for traffic in self.communicated.values())


@dataclass(frozen=True)
class Boxing:
    """A value brought into another SBP or to another placement for the op that reads it.

    ``collective`` is "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "send", "slice" where a rank keeps a part of
    what it has, or "none"; ``bytes`` is its payload for one rank and one step, of a "send" what the rank is sent that reads the value.
    Gradients of one ``bucket`` go in one call.
    """

    value: str
    from_sbp: tuple[str, ...]
    to_sbp: tuple[str, ...]
    from_placement: str
    to_placement: str
    collective: str
    bytes: int
    bucket: int | None = None


@dataclass(frozen=True)
class PlanOp:
    """One op of the program. Shape, dtype and SBP are those of its first output, ``boxing`` is what its inputs need before it runs.

    ``name`` and ``line`` are the user's, ``op`` is the row and ``aten`` the op it has become; ``part`` is "forward", "backward" or
    "update"; ``sbp`` has one layout an axis. Shapes are of one micro-batch, ``flops`` of all of a step: what the first rank of the placement
    computes in matrix products, convolutions and attention.
    """

    index: int
    name: str
    op: str
    aten: str
    part: str
    line: str
    shape: tuple[int, ...]
    dtype: str
    sbp: tuple[str, ...]
    placement: str
    local_shape: tuple[int, ...]
    flops: int = 0
    has_rule: bool = True
    boxing: tuple[Boxing, ...] = ()


@dataclass(frozen=True)
class PlanVariable:
    """A variable and where its parts are; ``bytes`` is what one rank keeps of it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    sbp: tuple[str, ...]
    placement: str
    bytes: int


@dataclass(frozen=True)
class Plan:
    """What a job will do on its devices, known without starting any. ``print(plan)`` shows it, ``save`` writes it."""

    job: str
    kind: str
    device_type: str
    devices: int
    axes: tuple[int, ...]
    micro_batches: int
    ranks: tuple[RankCost, ...]
    ops: tuple[PlanOp, ...]
    notes: tuple[str, ...] = ()
    variables: tuple[PlanVariable, ...] = ()

    def __str__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        """The page, in a frame of its own, where a notebook shows it."""
        page = html.escape(plan_page(self), quote=True)
        return f'<iframe srcdoc="{page}" title="plan of a job" style="width:100%;height:720px;border:0"></iframe>'

    def to_json(self) -> str:
        """One line of JSON with the fields of these classes; ``Plan.from_json`` reads it."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan that ``to_json`` wrote."""
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ArgumentError(f"a plan is read from the JSON that Plan.to_json gives; this is no JSON: {error}") from None
        form = found.pop("format", None) if isinstance(found, dict) else None
        if form != FORMAT:
            raise ArgumentError(f"a plan's JSON has the format {FORMAT!r}, this has {form!r}; make it anew with this version")
        try:
            return _plan(found)
        except (TypeError, KeyError, AttributeError) as error:
            raise ArgumentError(f"a plan's JSON has the fields that Plan.to_json gives; this has not: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan beside ``path`` and renames: text for ``.txt``, JSON for ``.json``, for ``.html`` a page that needs nothing else."""
        suffix = os.path.splitext(os.fspath(path))[1]
        forms = {".txt": lambda: f"{plan_text(self)}\n", ".json": lambda: f"{self.to_json()}\n", ".html": lambda: plan_page(self)}
        if suffix not in forms:
            raise ArgumentError(f"a plan is saved as .txt, .json or .html, got {os.fspath(path)!r}; give it one of these endings")
        data = forms[suffix]().encode()
        with written_beside(path) as file:
            file.write(data)


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as ``RankCost`` names them: [0, 1, 2, 5] is "0-2,5"."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _plan(found: dict[str, Any]) -> Plan:
    ranks = tuple(_rank(rank) for rank in found.pop("ranks"))
    ops = tuple(_op(op) for op in found.pop("ops"))
    variables = tuple(PlanVariable(**_frozen(variable)) for variable in found.pop("variables"))
    return Plan(ranks=ranks, ops=ops, variables=variables, **_frozen(found))


def _rank(found: dict[str, Any]) -> RankCost:
    communicated = {name: Traffic(**traffic) for name, traffic in found.pop("communicated").items()}
    return RankCost(communicated=communicated, **found)


def _op(found: dict[str, Any]) -> PlanOp:
    boxing = tuple(Boxing(**_frozen(step)) for step in found.pop("boxing"))
    return PlanOp(boxing=boxing, **_frozen(found))


def _frozen(found: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where these classes have tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
