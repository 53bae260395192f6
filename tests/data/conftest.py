"""Fixtures that the test files of the Loader take."""

from __future__ import annotations

import pytest
from loader_records import SIZES, N, picture, record

from oneflow.data import write_records
from oneflow.engine.core.record.messages import FeatureValue


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """37 records of small pictures in three parts."""
    path = tmp_path_factory.mktemp("data")
    numbers = iter(range(N))
    for part, size in enumerate(SIZES):
        write_records(path / f"part-{part}", [record(next(numbers)) for _ in range(size)])
    return path


@pytest.fixture
def broken(tmp_path):
    """Ten records; of number 3 the picture is cut short, of number 4 it is none."""
    bad = {3: picture(3)[:200], 4: b"not a picture"}
    write_records(
        tmp_path / "part-0",
        [record(i, encoded=FeatureValue("bytes_list", [bad.get(i) or picture(i)])) for i in range(10)],
    )
    return tmp_path
