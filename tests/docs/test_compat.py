"""What docs/compat.md says is refused is refused, and what it says is absent is absent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.core.errors import UnsupportedError

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "compat.md").read_text(encoding="utf-8").split("## What is refused\n")[1]
REFUSED = re.findall(r"^\| `(flow\..*?)` \|", TEXT, re.MULTILINE)
CELLS = re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \|", TEXT.split("do not exist")[1], re.MULTILINE)
ABSENT = [name for cell in CELLS for name in re.findall(r"`([\w.]+)`", cell)]


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
def test_what_is_said_to_be_absent_is_absent(name: str) -> None:
    value: Any = flow
    *spaces, last = name.split(".")
    for space in spaces:
        value = getattr(value, space)
    assert not hasattr(value, last), f"docs/compat.md says that there is no flow.{name}; correct it"
