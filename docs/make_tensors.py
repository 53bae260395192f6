"""Writes the tables of docs/tensors.md anew: each stands below a line `<!-- table: name -->`, as lines that begin with
a bar.

python docs/make_tensors.py            writes the file
python docs/make_tensors.py --check    exits with 1 if the file is not up to date
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from oneflow._C.absent import ABSENT as FUNCTIONAL_ABSENT
from oneflow.engine.eager.names import ABSENT, WRITTEN
from oneflow.engine.eager.tensor_methods import METHODS, PROPERTIES
from oneflow.engine.global_tensor.methods import TENSOR_METHODS
from oneflow.nn.choices import ABSENT as NN_ABSENT
from oneflow.nn.choices import CHOICES

TARGET = Path(__file__).parent / "tensors.md"
OLDER = {"is_consistent": "is_global", "to_consistent": "to_global"}
TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(?:\|[^\n]*\n)*")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _grouped(table: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names that share a text in one row, in the order of the first."""
    names: dict[str, list[str]] = {}
    for name, text in table.items():
        names.setdefault(text, []).append(f"`{name}`")
    return [(", ".join(found), text) for text, found in names.items()]


def written() -> list[str]:
    return ["| `flow.` | what differs |", "|---|---|", *(_row(*pair) for pair in _grouped(WRITTEN))]


def modules() -> list[str]:
    rows = [
        _row(", ".join(f"`{c.namespace.removeprefix('oneflow.')}.{n}`" for n in c.names), c.oneflow, c.here)
        for c in CHOICES
    ]
    return ["| name | OneFlow | here |", "|---|---|---|", *rows]


def _told(name: str, value: object) -> str:
    """The first paragraph of what a method says of itself; those that say nothing are there to refuse a local
    tensor."""
    if name in OLDER:
        return f"``{OLDER[name]}`` by its older name."
    paragraph = (inspect.getdoc(value) or "Of global tensors; a local tensor refuses it.").split("\n\n")[0]
    return " ".join(paragraph.split())


def methods() -> list[str]:
    texts = {name: _told(name, value) for name, value in (TENSOR_METHODS | METHODS | PROPERTIES).items()}
    rows = [_row(f"`{name}`", text) for name, text in sorted(texts.items())]
    return ["| name | what it is |", "|---|---|", *rows]


def absent() -> list[str]:
    spaces = {"flow": ABSENT, "flow.nn": NN_ABSENT, "flow._C": FUNCTIONAL_ABSENT}
    rows = [_row(f"`{space}`", *pair) for space, table in spaces.items() for pair in _grouped(table)]
    return ["| in | names | why, and what to use |", "|---|---|---|", *rows]


TABLES: dict[str, Callable[[], list[str]]] = {
    "written": written,
    "modules": modules,
    "methods": methods,
    "absent": absent,
}


def made(text: str) -> str:
    """``text`` with every table as the code has it."""
    return TABLE.sub(lambda match: match[1] + "".join(f"{row}\n" for row in TABLES[match[2]]()), text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    text = TARGET.read_text(encoding="utf-8")
    if not parser.parse_args().check:
        TARGET.write_text(made(text), encoding="utf-8")
        return 0
    if made(text) == text:
        return 0
    print(f"{TARGET.name} is not up to date; run python docs/{Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
