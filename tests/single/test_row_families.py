"""The one list of op families, and what is said when a file of one of them lacks something."""

from __future__ import annotations

from pathlib import Path

import pytest
from families import (
    FILES,
    FOLDER,
    emitters_of_no_row,
    files_not_listed,
    owners,
    rows_not_in_onnx,
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


@pytest.mark.parametrize("reasons", [{}, {"nn.foo": ""}], ids=["neither", "no reason"])
def test_a_row_without_an_emitter_is_told_with_the_file_to_add_it_in(reasons: dict[str, str]) -> None:
    assert rows_not_in_onnx({"nn.foo": "activation", "bar": "sort"}, {"bar"}, reasons) == [
        "row nn.foo has no ONNX emitter: add one, or EMITTERS.cannot('nn.foo', reason), in "
        "src/oneflow/engine/onnx/rows/activation.py"
    ]


def test_an_emitter_and_a_reason_or_an_emitter_of_no_row_are_told() -> None:
    assert rows_not_in_onnx({"bar": "sort"}, {"bar"}, {"bar": "no such op"}) == [
        "row bar has an ONNX emitter and a reason why there is none: delete one in src/oneflow/engine/onnx/rows/sort.py"
    ]
    assert emitters_of_no_row({"bar": "sort"}, {"bar", "baz"}) == [
        "src/oneflow/engine/onnx/rows has an entry for baz, which is no row of src/oneflow/engine/ops"
    ]


def test_a_file_of_rows_that_is_not_listed_is_told(tmp_path) -> None:
    (tmp_path / "fresh.py").write_text("from oneflow.engine.ops.row import Family\n\nROWS = Family()\n")
    (tmp_path / "other.py").write_text("ROW = 1\n")
    assert files_not_listed(tmp_path, FAMILIES) == [
        "fresh.py makes a family of op rows: add 'fresh' to the list of src/oneflow/engine/ops/table.py"
    ]
