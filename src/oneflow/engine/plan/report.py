"""The plan of a job: what every op costs each rank and what is communicated, as a value that prints, saves and
loads."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from oneflow.engine.core.errors import ArgumentError
from oneflow.engine.data.formats.files import written_beside
from oneflow.engine.plan.page import plan_page
from oneflow.engine.plan.read import read_value
from oneflow.engine.plan.text import overview_text, plan_text
from oneflow.engine.plan.values import FORMAT, Figures


@dataclass(frozen=True)
class Plan(Figures):
    """What a job will do on its devices, known without starting any. ``print(plan)`` shows it, ``save`` writes it."""

    def __str__(self) -> str:
        return plan_text(self)

    def overview(self) -> str:
        """The beginning of the text: what each rank costs, and the notes."""
        return overview_text(self)

    def _repr_html_(self) -> str:
        """The page, in a frame of its own, where a notebook shows it."""
        page = html.escape(plan_page(self), quote=True)
        return f'<iframe srcdoc="{page}" title="plan of a job" style="width:100%;height:720px;border:0"></iframe>'

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """The plan that ``to_json`` wrote."""
        try:
            found = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(
                f"a plan is read from the JSON that Plan.to_json gives; this is no JSON: {error}"
            ) from None
        form = found.pop("format", None) if isinstance(found, dict) else None
        if form != FORMAT:
            raise ArgumentError(
                f"a plan's JSON has the format {FORMAT!r}, this has {form!r}; make it anew with this version"
            )
        return read_value(cls, found, "the plan")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan beside ``path`` and renames: text for ``.txt``, JSON for ``.json``, for ``.html`` a page that
        needs nothing else."""
        save_plans([self], path)


_FORMS: dict[str, Callable[[Sequence[Plan]], str]] = {
    ".txt": lambda plans: "\n\n\n".join(map(plan_text, plans)) + "\n",
    ".json": lambda plans: "".join(f"{plan.to_json()}\n" for plan in plans),
    ".html": lambda plans: plan_page(*plans),
}


def save_plans(plans: Sequence[Plan], path: str | os.PathLike[str]) -> None:
    """Writes plans into one file, beside ``path`` and renamed; the ending of its name chooses the form."""
    data = _FORMS[checked_ending(path)](plans).encode()
    with written_beside(path) as file:
        file.write(data)


def checked_ending(path: str | os.PathLike[str]) -> str:
    """The ending of a file that plans can be saved to."""
    ending = os.path.splitext(os.fspath(path))[1]
    if ending not in _FORMS:
        raise ArgumentError(
            f"a plan is saved as .txt, .json or .html, got {os.fspath(path)!r}; give it one of these endings"
        )
    return ending


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks as ``RankCost`` names them: [0, 1, 2, 5] is "0-2,5"."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(sorted(ranks)), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
