"""docs/tensors.md tells every name that is added, written here or absent, as the code has it."""

from __future__ import annotations

import importlib.util
from inspect import unwrap
from pathlib import Path

import pytest
import torch

import oneflow as flow

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "tensors.md").read_text(encoding="utf-8")
_spec = importlib.util.spec_from_file_location("make_tensors", DOCS / "make_tensors.py")
assert _spec is not None and _spec.loader is not None
maker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(maker)


def test_the_tables_are_up_to_date():
    assert maker.made(TEXT) == TEXT, "run python docs/make_tensors.py"
    assert TEXT.count("<!-- table: ") == len(maker.TABLES)


@pytest.mark.parametrize(
    "table",
    [
        maker.WRITTEN,
        maker.ABSENT,
        maker.NN_ABSENT,
        maker.FUNCTIONAL_ABSENT,
        maker.METHODS,
        maker.PROPERTIES,
        maker.TENSOR_METHODS,
    ],
)
def test_every_name_is_told(table):
    assert not [name for name in table if f"`{name}`" not in TEXT]


def test_what_is_not_torchs_own_says_what_differs():
    """Of the names that torch has too, or that OneFlow 0.9 has and torch has not."""
    names = [name for name in flow.__all__ if hasattr(torch, name) and callable(getattr(flow, name))]
    tensors = {name: getattr(getattr(flow, name), "of_tensors", getattr(flow, name)) for name in names}
    # torch's compiler, once it is loaded, wraps functions such as manual_seed.
    others = {name for name, value in tensors.items() if unwrap(value) is not unwrap(getattr(torch, name))}
    assert others - maker.WRITTEN.keys() == {"load", "save", "range", "smooth_l1_loss"} & others
    assert not [name for name in maker.WRITTEN if tensors.get(name) is getattr(torch, name, maker)]


@pytest.mark.parametrize("name", [*maker.ABSENT])
def test_an_absent_name_is_no_public_one(name):
    assert name not in flow.__all__
