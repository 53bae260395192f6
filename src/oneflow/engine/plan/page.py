"""A plan as one HTML page that needs nothing else: style, script and data are in it, and it asks for no other file."""

from __future__ import annotations

import html
import re
from importlib import resources

from oneflow.engine.plan.values import Figures

_PLACE = re.compile(r"\{\{(\w+)\}\}")
# Inside a script element only "<" can end it; the two line separators are for readers that take JSON for JavaScript.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def plan_page(*plans: Figures) -> str:
    """The page of one plan, or of several to choose from. Names are the user's and are never read as HTML or script."""
    texts = [plan.to_json() for plan in plans]
    filling = {
        "title": html.escape(f"{', '.join(plan.job for plan in plans)}: plan"),
        "style": _template("page.css"),
        "script": _template("page.js"),
        "data": (texts[0] if len(texts) == 1 else f"[{','.join(texts)}]").translate(_ESCAPES),
    }
    return _PLACE.sub(lambda place: filling[place[1]], _template("page.html"))


def _template(name: str) -> str:
    return (resources.files("oneflow.engine.plan") / "template" / name).read_text(encoding="utf-8")
