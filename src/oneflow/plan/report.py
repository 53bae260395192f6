"""The plan of a job: what every op costs each rank and what is communicated, as a value that prints, saves and loads."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from oneflow.core.errors import ArgumentError
from oneflow.data.files import written_beside
from oneflow.plan.page import plan_page
from oneflow.plan.text import plan_text
from oneflow.plan.values import FORMAT, Boxing, Figures, PlanOp, PlanVariable, RankCost, Traffic


@dataclass(frozen=True)
class Plan(Figures):
    """What a job will do on its devices, known without starting any. ``print(plan)`` shows it, ``save`` writes it."""

    def __str__(self) -> str:
        return plan_text(self)

    def _repr_html_(self) -> str:
        """The page, in a frame of its own, where a notebook shows it."""
        page = html.escape(plan_page(self), quote=True)
        return f'<iframe srcdoc="{page}" title="plan of a job" style="width:100%;height:720px;border:0"></iframe>'

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
