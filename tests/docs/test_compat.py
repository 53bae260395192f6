"""What docs/compat.md says is refused is refused, and what it says is absent is absent."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.compat.absent_modules import AbsentModuleError
from oneflow.compat.refused import REFUSED as REFUSED_NAMES
from oneflow.compat.refused import REFUSED_DATA, REFUSED_EXPERIMENTAL, REFUSED_IMAGE, REFUSED_NAMESPACES
from oneflow.compat.spellings import EARLIER, SPELLINGS
from oneflow.engine.core.errors import AbsentNameError, UnsupportedError

WHOLE = (Path(__file__).resolve().parents[2] / "docs" / "compat.md").read_text(encoding="utf-8")
TEXT = WHOLE.split("## What is refused\n")[1]
REFUSED = re.findall(r"^\| `(flow\..*?)` \|", TEXT, re.MULTILINE)
CELLS = re.findall(r"^\| ((?:`[\w.*]+`(?:, )?)+) \| (.*) \|$", TEXT.split("are not there")[1], re.MULTILINE)
ABSENT = {name: reason for cell, reason in CELLS for name in re.findall(r"`([\w.*]+)`", cell)}
SPELLED = re.findall(
    r"^\| `flow\.(.*?)` \| (.*?) \| (.*?) \|$", WHOLE.split("## Other spellings")[1].split("## ")[0], re.MULTILINE
)


def test_both_tables_are_found() -> None:
    assert len(REFUSED) >= 12 and len(ABSENT) >= 14


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_said_to_be_refused_is_refused(expression: str) -> None:
    seen: list[Any] = []

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((4, 4)), indices: tp.Numpy.Placeholder((4,), dtype=flow.int32)) -> tp.Numpy:
        rate = flow.optimizer.ConstantScheduler(0.1)
        seen.append(eval(expression, {"flow": flow, "x": x, "indices": indices, "rate": rate}))
        return x

    with pytest.raises(UnsupportedError):
        job(np.zeros((4, 4), np.float32), np.zeros(4, np.int32))
    assert not seen, f"docs/compat.md says that {expression} is refused; it gives {seen}"


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_said_to_be_absent_says_why_itself(name: str) -> None:
    with pytest.raises(AbsentNameError, match=re.escape(f" is not there: {ABSENT[name]}")) as caught:
        eval(f"flow.{name.replace('*', 'anything')}", {"flow": flow})
    assert len(str(caught.value).splitlines()) == 1


def test_every_name_that_is_refused_is_told() -> None:
    tables = {"": REFUSED_NAMES, "data.": REFUSED_DATA, "image.": REFUSED_IMAGE, "experimental.": REFUSED_EXPERIMENTAL}
    names = {space + name for space, table in tables.items() for name in table} | {
        f"{name}.*" for name in REFUSED_NAMESPACES
    }
    assert names <= ABSENT.keys()


@pytest.mark.parametrize("name", REFUSED_NAMESPACES)
def test_a_refused_module_can_be_imported_by_either_path(name: str) -> None:
    for root in ("oneflow", "oneflow.compatible.single_client"):
        with pytest.raises(AbsentNameError, match=f"oneflow.{name}.anything is not there"):
            _ = import_module(f"{root}.{name}").anything


def test_an_import_from_a_refused_module_says_why() -> None:
    with pytest.raises(
        AbsentModuleError, match="oneflow.serving.InferenceSession is not there: models are not served from here"
    ):
        exec("from oneflow.serving import InferenceSession", {})


def test_every_spelling_is_told() -> None:
    told = {name: (keywords, order) for name, keywords, order in SPELLED}
    assert told.keys() == {*SPELLINGS, *EARLIER}
    for name, (keywords, order) in told.items():
        pairs = ", ".join(f"`{other}` for `{present}`" for other, present in sorted(SPELLINGS.get(name, {}).items()))
        assert keywords == (pairs or "-")
        assert order == (f"`{', '.join(n for n in EARLIER[name].names if n != 'self')}`" if name in EARLIER else "-")
