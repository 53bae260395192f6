"""The samples of all op rows, one file per family, and what is missing, each with the file to add it in.

The families are those of ``oneflow.engine.ops.table``; a new one there is found to lack its file here.
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


# ------------------------------------------------------------------ ONNX

ONLY_IN_TRAIN_JOBS = {"layers.batch_norm_train", "nn.dropout"}

_RANDOM = "its random bits are a function of seed, step and index"
NOT_IN_ONNX = {
    "assign": "an ONNX model has no variables that a step could write",
    "math.lgamma": "ONNX has no gamma",
    "nn.random_mask_like": _RANDOM,
    "random.bernoulli": _RANDOM,
    "random.coin_flip": _RANDOM,
    "random.generate_random_batch_permutation_indices": _RANDOM,
    "random.shuffle": _RANDOM,
}
"""The rows that ONNX cannot express, and how the error begins its reason."""


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


def files_not_listed(folder: Path, listed: Collection[str]) -> list[str]:
    """Files of ``folder`` that make a family of op rows which the table does not list."""
    return [
        f"{path.name} makes a family of op rows: add {path.stem!r} to the list of src/oneflow/engine/ops/table.py"
        for path in sorted(folder.glob("*.py"))
        if "\nROWS = Family()" in path.read_text(encoding="utf-8") and path.stem not in listed
    ]
