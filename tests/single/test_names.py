"""The public names of OneFlow 0.9: each is there and is called, or is refused with what to use instead."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from name_calls import every_call

import oneflow as flow
from oneflow.core.errors import AbsentNameError

NAMES: dict[str, dict[str, str]] = json.loads((Path(__file__).parents[1] / "names_0_9.json").read_text(encoding="utf-8"))
CALLS = every_call()
# Which part of a namespace's names is there at least. Those that are not in this table have no names here yet.
SHARES = {
    "oneflow": 0.95,
    "oneflow.Tensor": 0.96,
    "oneflow.linalg": 1.0,
    "oneflow.autograd": 1.0,
    "oneflow.cuda": 1.0,
    "oneflow.profiler": 1.0,
    "oneflow._C": 0.83,
}
CLASSES = {"oneflow.Tensor"}  # classes of torch, which have no refusals of ours


def found(space: str, name: str) -> Any:
    """What a name leads to: AbsentNameError or AttributeError if it is not there."""
    if space in CLASSES:
        return getattr(getattr(flow, space.split(".")[1]), name)
    return getattr(import_module(space), name)


def is_there(space: str, name: str) -> bool:
    try:
        found(space, name)
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("space", SHARES)
def test_a_namespace_has_its_share_of_names(space: str) -> None:
    missing = [name for name in NAMES[space] if not is_there(space, name)]
    assert 1 - len(missing) / len(NAMES[space]) >= SHARES[space], missing


@pytest.mark.parametrize("space", [space for space in SHARES if space not in CLASSES])
def test_a_name_that_is_not_there_says_what_to_use(space: str) -> None:
    for name in (name for name in NAMES[space] if not is_there(space, name)):
        with pytest.raises(AbsentNameError, match=f"{space}.{name} is not there: .{{10,}}"):
            found(space, name)


@pytest.mark.parametrize("space", SHARES)
def test_every_name_that_is_there_has_a_call(space: str) -> None:
    silent = [name for name in NAMES[space] if is_there(space, name) and f"{space}.{name}" not in CALLS]
    assert not silent, f"write calls of these in tests/single/name_calls: {silent}"


@pytest.mark.parametrize("name", CALLS)
def test_a_name_does_what_it_says(name: str) -> None:
    CALLS[name]()
