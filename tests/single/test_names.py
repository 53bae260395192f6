"""The public names of OneFlow 0.9: each is there and is called, or is refused with what to use instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from name_calls import every_call

import oneflow as flow
from oneflow.engine.core.errors import AbsentNameError

NAMES: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "names_0_9.json").read_text(encoding="utf-8")
)
CALLS = every_call()
# Which part of a namespace's names is there at least.
SHARES = {
    "oneflow": 0.95,
    "oneflow.Tensor": 0.96,
    "oneflow.nn": 0.91,
    "oneflow.nn.functional": 1.0,
    "oneflow.nn.init": 1.0,
    "oneflow.nn.utils": 1.0,
    "oneflow.optim": 1.0,
    "oneflow.optim.lr_scheduler": 1.0,
    "oneflow.utils.data": 1.0,
    "oneflow.linalg": 1.0,
    "oneflow.autograd": 1.0,
    "oneflow.amp": 1.0,
    "oneflow.cuda": 1.0,
    "oneflow.profiler": 1.0,
    "oneflow._C": 0.83,
    "oneflow.nn.Graph": 1.0,
    "oneflow.nn.parallel": 1.0,
    "oneflow.comm": 1.0,
    "oneflow.env": 1.0,
    "oneflow.sbp": 1.0,
    "oneflow.boxing": 1.0,
    "oneflow.placement": 1.0,
    "oneflow.utils.global_view": 1.0,
}
# Namespaces that have no names yet: each moves into the table above when its first name is there.
TO_COME = ("oneflow.one_embedding",)
CLASSES = {"oneflow.Tensor", "oneflow.nn.Graph", "oneflow.placement"}  # classes, which have no refusals of ours
CALLED_ELSEWHERE = {
    "oneflow.nn.Graph",
    "oneflow.nn",
}  # by the tests of graphs; by test_nn_names.py, which has names of graphs apart
OVERALL = 0.95  # of the names of all namespaces but those below
NOT_COUNTED = {"oneflow._C", "oneflow.one_embedding", *TO_COME}  # the parts of OneFlow's runtime, and what is to come


def found(space: str, name: str) -> Any:
    """What a name leads to: AbsentNameError or AttributeError if it is not there."""
    return getattr(_space(space), name)


def _space(space: str) -> Any:
    value: Any = flow
    for part in space.split(".")[1:]:
        value = getattr(value, part)
    return value


def is_there(space: str, name: str) -> bool:
    try:
        found(space, name)
    except AttributeError:
        return False
    return True


def missing(space: str) -> list[str]:
    return [name for name in NAMES[space] if not is_there(space, name)]


def test_every_namespace_has_a_place():
    assert NAMES.keys() == SHARES.keys() | set(TO_COME) and not SHARES.keys() & set(TO_COME)


@pytest.mark.parametrize("space", SHARES)
def test_a_namespace_has_its_share_of_names(space: str) -> None:
    assert 1 - len(missing(space)) / len(NAMES[space]) >= SHARES[space], missing(space)


def test_ninety_five_of_a_hundred_names_are_there():
    counted = [space for space in NAMES if space not in NOT_COUNTED]
    absent = sum(len(missing(space)) for space in counted)
    assert 1 - absent / sum(len(NAMES[space]) for space in counted) >= OVERALL


@pytest.mark.parametrize("space", TO_COME)
def test_a_namespace_that_came_stands_in_the_table(space: str) -> None:
    assert missing(space) == list(NAMES[space]), f"names of {space} are there now: put it into SHARES"


@pytest.mark.parametrize("space", [space for space in SHARES if space not in CLASSES | CALLED_ELSEWHERE])
def test_a_name_that_is_not_there_says_what_to_use(space: str) -> None:
    for name in missing(space):
        with pytest.raises(AbsentNameError, match=f"{space}.{name} is not there: .{{10,}}"):
            found(space, name)


@pytest.mark.parametrize("space", [space for space in SHARES if space not in CALLED_ELSEWHERE])
def test_every_name_that_is_there_has_a_call(space: str) -> None:
    silent = [name for name in NAMES[space] if is_there(space, name) and f"{space}.{name}" not in CALLS]
    assert not silent, f"write calls of these in tests/single/name_calls: {silent}"


@pytest.mark.parametrize(
    "name", [name for name in CALLS if not name.startswith("oneflow.nn.")]
)  # test_nn_names.py calls those
def test_a_name_does_what_it_says(name: str) -> None:
    CALLS[name]()
