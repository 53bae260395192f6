"""What the ops of flow.math, flow.linalg and flow.keras refuse, and with what words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "samples"))

from runner import trace
from sample import Sample, ints, rand

from oneflow import linalg
from oneflow import math as fmath
from oneflow.engine.core.errors import ArgumentError, DTypeError, OutsideJobError
from oneflow.keras import activations

F, I = rand(2, 3), ints(2, 3)
SMALL, BYTE = ints(2, dtype=np.int8), ints(2, dtype=np.uint8)
CUBE = rand(2, 3, 4)

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...], type[Exception], str]

DTYPES: list[Case] = [
    (
        lambda x, y: x + y,
        (F, I),
        DTypeError,
        r"math\.add .*float32 and int32; cast one.*float32\(2, 3\).*int32\(2, 3\)",
    ),
    (fmath.equal, (F, I), DTypeError, "float32 and int32"),
    (fmath.maximum, (I, I.astype(np.int64)), DTypeError, "int32 and int64"),
    (lambda x, y: fmath.add_n([x, y]), (F, I), DTypeError, "float32 and int32"),
    (linalg.matmul, (F, rand(3, 2).astype(np.float64)), DTypeError, "float32 and float64"),
    (linalg.matmul, (I, ints(3, 2)), DTypeError, "expected a float blob, got int32"),
    (fmath.exp, (I,), DTypeError, "math.exp .*expected a float blob, got int32; cast it"),
    (fmath.atan2, (I, I), DTypeError, "expected a float blob"),
    (fmath.xdivy, (I, I), DTypeError, "expected a float blob"),
    (fmath.xlogy, (I, I), DTypeError, "expected a float blob"),
    (fmath.reduce_mean, (I,), DTypeError, "expected a float blob"),
    (fmath.l2_normalize, (I,), DTypeError, "expected a float blob"),
    (lambda x: fmath.in_top_k(x, x, 1), (F,), ArgumentError, "targets are class numbers"),
]

NUMBERS: list[Case] = [
    (lambda x: x + 0.5, (I,), DTypeError, "0.5 does not fit a int32 blob"),
    (lambda x: x * float("inf"), (I,), DTypeError, "inf does not fit"),
    (lambda x: x + 200, (SMALL,), DTypeError, "200 does not fit a int8 blob"),
    (lambda x: -1 * x, (BYTE,), DTypeError, "-1 does not fit a uint8 blob"),
    (lambda x: x + True, (F,), DTypeError, "got bool True"),
    (lambda x: x + "1", (F,), DTypeError, "got str '1'"),
    (lambda x: fmath.add(1, 2), (F,), ArgumentError, "at least one operand must be a blob"),
    (lambda x: fmath.relu(3.0), (F,), DTypeError, "expected a blob, got float 3.0"),
    (lambda x: fmath.clip_by_value(x, 0, 1.5), (I,), DTypeError, "1.5 does not fit"),
]

SHAPES: list[Case] = [
    (fmath.add, (F, rand(4)), ArgumentError, r"math\.add"),
    (lambda x, y: fmath.add_n([x, y]), (F, rand(3)), ArgumentError, "blobs of one shape"),
    (lambda x: fmath.add_n([]), (F,), ArgumentError, "at least one blob"),
    (lambda x: fmath.add_n([x, 1]), (F,), DTypeError, "expected a blob, got int 1"),
    (fmath.add_n, (F,), ArgumentError, "a list or a tuple, got Blob"),
    (lambda x: fmath.polyval(2, x), (F,), ArgumentError, "a list or a tuple, got int"),
    (linalg.matmul, (rand(3), rand(3)), ArgumentError, "rank 2 or more, got ranks 1 and 1"),
    (linalg.matmul, (F, CUBE), ArgumentError, "a has rank 2, b has rank 3"),
    (linalg.matmul, (F, F), ArgumentError, "a has 3 columns and b has 2 rows"),
    (linalg.matmul, (CUBE, rand(1, 4, 5)), ArgumentError, "leading dimensions differ"),
    (fmath.tril, (rand(3),), ArgumentError, "rank 2 or more, got rank 1"),
    (lambda t, p: fmath.in_top_k(t, p, 1), (ints(3), F), ArgumentError, r"targets have shape \(2,\).*got \(3,\)"),
    (lambda t, p: fmath.in_top_k(t, p, 1), (ints(2), rand(2)), ArgumentError, r"\(batch, classes\)"),
]

ATTRIBUTES: list[Case] = [
    (lambda x: fmath.reduce_sum(x, 2), (F,), ArgumentError, "axis 2 is out of range for a blob of rank 2"),
    (lambda x: fmath.reduce_sum(x, [0, -2]), (F,), ArgumentError, "names a dimension twice"),
    (lambda x: fmath.reduce_sum(x, "0"), (F,), ArgumentError, "axis is an int, a list of ints or None"),
    (lambda x: fmath.reduce_sum(x, True), (F,), ArgumentError, "axis is an int"),
    (lambda x: fmath.argmax(x, [0]), (F,), ArgumentError, "axis is one int"),
    (lambda x: fmath.argmax(x, -3), (F,), ArgumentError, "axis -3 is out of range"),
    (lambda x: fmath.top_k(x, k=0), (F,), ArgumentError, "k is an int of at least 1"),
    (
        lambda x: fmath.top_k(x, 2),
        (rand(2, 3, 4),),
        ArgumentError,
        r"top_k\(x, 2\) is 2 elements .* 2020.*write k=2 or axis=2",
    ),
    (lambda t, p: fmath.in_top_k(t, p, 0), (ints(2), F), ArgumentError, "k is an int of at least 1"),
    (lambda x: fmath.l2_normalize(x, []), (F,), ArgumentError, "no dimension"),
    (fmath.clip_by_value, (F,), ArgumentError, "got neither"),
    (lambda x: fmath.clip_by_value(x, 2, 1), (F,), ArgumentError, "2.0 is above the upper bound 1.0"),
    (lambda x: fmath.tril(x, 0.5), (F,), ArgumentError, "diagonal is an int"),
    (lambda x: activations.relu(x, alpha=0.1), (F,), ArgumentError, "alpha=0.1.*leaky_relu"),
    (
        lambda x: fmath.reduced_shape_elem_cnt(x, dtype="int8"),
        (rand(20, 20),),
        DTypeError,
        "400 does not fit a int8 blob",
    ),
]


@pytest.mark.parametrize("call, inputs, kind, words", DTYPES + NUMBERS + SHAPES + ATTRIBUTES)
def test_refused(call: Callable[..., Any], inputs: tuple[np.ndarray, ...], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        trace(Sample("", call, inputs, call))
    assert Path(__file__).name in str(caught.value) or "runner.py" in str(caught.value)


@pytest.mark.parametrize("call", [lambda: fmath.add(1, 2), lambda: fmath.relu(1), lambda: linalg.matmul(1, 2)])
def test_outside_a_job(call: Callable[[], Any]) -> None:
    with pytest.raises(OutsideJobError, match="outside a job function"):
        call()
