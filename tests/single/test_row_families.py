"""The one list of op families, and what is said when a file of one of them lacks something."""

from __future__ import annotations

from pathlib import Path

from families import (
    FILES,
    FOLDER,
    files_not_listed,
    owners,
    rows_without_a_sample,
    samples_of_no_row,
)
from sample import Sample

import oneflow.engine.ops
from oneflow.engine.ops.table import FAMILIES, ROWS


def test_every_file_of_op_rows_is_in_the_list() -> None:
    missing = files_not_listed(Path(oneflow.engine.ops.__file__).parent, FAMILIES)
    assert not missing, "\n".join(missing)


def test_every_file_of_samples_belongs_to_a_family() -> None:
    stray = sorted({path.stem for path in FOLDER.glob("*.py")} - {*FILES, "families", "runner", "sample"})
    assert not stray, (
        f"no family of src/oneflow/engine/ops/table.py has samples of these names, so nobody runs them: {stray}"
    )


def test_no_row_is_in_two_families() -> None:
    names = [op.name for family in FAMILIES.values() for op in family]
    assert sorted(names) == sorted(ROWS)


def test_owners_name_the_file_of_a_row() -> None:
    assert owners()["nn.relu6"] == "activation" and owners()["concat"] == "array"
    assert owners().keys() == ROWS.keys()


def test_a_row_without_a_sample_is_told_with_the_file_to_add_it_in() -> None:
    assert rows_without_a_sample({"nn.foo": "activation", "foo": "array", "bar": "sort"}, {"bar"}) == [
        "row nn.foo has no sample: add one in tests/single/samples/activation.py",
        "row foo has no sample: add one in tests/single/samples/arrays.py",
    ]


def test_a_sample_of_no_row_is_told_with_its_file() -> None:
    found = samples_of_no_row(
        {"sort": [Sample("sorted", lambda x: x, (), lambda x: x), Sample("sort", lambda x: x, (), lambda x: x)]}
    )
    assert found == [
        "tests/single/samples/sort.py has a sample of sorted, which is no row of src/oneflow/engine/ops: correct its name or "
        "delete it"
    ]


def test_a_file_of_rows_that_is_not_listed_is_told(tmp_path) -> None:
    (tmp_path / "fresh.py").write_text("from oneflow.engine.ops.row import Family\n\nROWS = Family()\n")
    (tmp_path / "other.py").write_text("ROW = 1\n")
    assert files_not_listed(tmp_path, FAMILIES) == [
        "fresh.py makes a family of op rows: add 'fresh' to the list of src/oneflow/engine/ops/table.py"
    ]
