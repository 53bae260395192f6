"""The samples of all op rows, one file per family, and what is missing, each with the file to add it in.

The families are those of ``oneflow.engine.ops.table``; a new one there is found to lack its files here and in ``onnx/rows``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from pathlib import Path

from sample import Sample

from oneflow.engine.ops.row import Op
from oneflow.engine.ops.table import FAMILIES, ROWS

FOLDER = Path(__file__).parent
_OTHER_NAMES = {"array": "arrays", "sample": "sampling"}  # a module of the standard library, and the one of Sample


def sample_file(family: str) -> str:
    """The module with the samples of a family."""
    return _OTHER_NAMES.get(family, family)


FILES = sorted(map(sample_file, FAMILIES))


# Of a family without a file, ``rows_without_a_sample`` tells every row.
BY_FILE: dict[str, list[Sample]] = {
    file: import_module(file).SAMPLES for file in FILES if (FOLDER / f"{file}.py").exists()
}
SAMPLES = [sample for samples in BY_FILE.values() for sample in samples]


# ------------------------------------------------------------------ what is missing


def owners(families: Mapping[str, Iterable[Op]] = FAMILIES) -> dict[str, str]:
    """The family of each row."""
    return {op.name: family for family, rows in families.items() for op in rows}


def rows_without_a_sample(owner: Mapping[str, str], sampled: Collection[str]) -> list[str]:
    return [
        f"row {row} has no sample: add one in tests/single/samples/{sample_file(family)}.py"
        for row, family in owner.items()
        if row not in sampled
    ]


def samples_of_no_row(samples: Mapping[str, list[Sample]]) -> list[str]:
    return [
        f"tests/single/samples/{file}.py has a sample of {sample.row}, which is no row of src/oneflow/engine/ops: correct its "
        f"name or delete it"
        for file, all_of_it in samples.items()
        for sample in all_of_it
        if sample.row not in ROWS
    ]


def rows_not_in_onnx(owner: Mapping[str, str], emitted: Collection[str], reasons: Mapping[str, str]) -> list[str]:
    """Rows with neither an emitter nor a reason why there is none, and with both."""
    missing = "row {0} has no ONNX emitter: add one, or EMITTERS.cannot({0!r}, reason), in src/oneflow/engine/onnx/rows/{1}.py"
    both = (
        "row {0} has an ONNX emitter and a reason why there is none: delete one in src/oneflow/engine/onnx/rows/{1}.py"
    )
    found = [missing.format(*pair) for pair in owner.items() if pair[0] not in emitted and not reasons.get(pair[0])]
    return found + [both.format(*pair) for pair in owner.items() if pair[0] in emitted and pair[0] in reasons]


def emitters_of_no_row(owner: Mapping[str, str], emitted: Collection[str]) -> list[str]:
    return [
        f"src/oneflow/engine/onnx/rows has an entry for {row}, which is no row of src/oneflow/engine/ops"
        for row in sorted(set(emitted) - set(owner))
    ]


def files_not_listed(folder: Path, listed: Collection[str]) -> list[str]:
    """Files of ``folder`` that make a family of op rows which the table does not list."""
    return [
        f"{path.name} makes a family of op rows: add {path.stem!r} to the list of src/oneflow/engine/ops/table.py"
        for path in sorted(folder.glob("*.py"))
        if "\nROWS = Family()" in path.read_text(encoding="utf-8") and path.stem not in listed
    ]
