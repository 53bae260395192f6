"""What the array ops and flow.random refuse, and with what words; and the few things they do beside computing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent / "samples"))

from runner import outputs, trace
from sample import Sample, ints, rand

from oneflow import array, random, system
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.errors import ArgumentError, DTypeError, NameError_, OutsideJobError, UnsupportedError
from oneflow.engine.core.sbp import BROADCAST, split
from oneflow.engine.ir.variable import get_variable
from oneflow.initializer import zeros_initializer

F, I = rand(2, 3), ints(2, 3)
CUBE, ROW, FLAGS = rand(2, 3, 4), rand(3), ints(2, 3, high=2, dtype=np.int8)
PAIRS = ints(4, 2, high=2)

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...], type[Exception], str]

SHAPES: list[Case] = [
    (
        lambda x: array.reshape(x, (4, 2)),
        (F,),
        ArgumentError,
        r"reshape .*6 elements cannot take the shape \(4, 2\).*float32\(2, 3\)",
    ),
    (lambda x: array.reshape(x, (4, -1)), (F,), ArgumentError, r"6 elements cannot take"),
    (lambda x: array.reshape(x, (-1, -1)), (F,), ArgumentError, "at most one -1"),
    (lambda x: array.reshape(x, (0, -1)), (F,), ArgumentError, "ints > 0 or one -1"),
    (lambda x: array.reshape(x, ()), (F,), ArgumentError, r"6 elements cannot take the shape \(\)"),
    (lambda x: array.reshape(x, (2.0, 3)), (F,), ArgumentError, "ints > 0 or one -1"),
    (lambda x: array.reshape(x, 6), (F,), ArgumentError, "reshape's shape is a list or tuple, got 6"),
    (lambda x: array.reshape(3.0, (1,)), (F,), DTypeError, "reshape takes blobs, got float 3.0"),
    (array.reshape_like, (F, ROW), ArgumentError, r"6 elements cannot take the shape \(3,\)"),
    (lambda x: array.flatten(x, 1, 0), (F,), ArgumentError, "from start_dim up to end_dim"),
    (lambda x: array.expand_dims(x, 3), (F,), ArgumentError, "an int from -3 to 2, got 3"),
    (lambda x: array.squeeze(x, 0), (F,), ArgumentError, "axis 0 has size 2"),
    (lambda x: array.squeeze(x, [2]), (F,), ArgumentError, "rank 2 is an int from -2 to 1, got 2"),
    (lambda x: array.transpose(x, [0, 0]), (F,), ArgumentError, "named twice"),
    (lambda x: array.transpose(x, [0]), (F,), ArgumentError, "each of the 2 axes once"),
    (lambda x: array.transpose(x, [1, 0], True), (F,), UnsupportedError, "no complex blobs"),
    (lambda x: array.reverse(x, True), (F,), ArgumentError, "got True"),
    (array.broadcast_like, (CUBE, F), ArgumentError, r"\(2, 3, 4\) cannot be broadcast to \(2, 3\)"),
    (array.broadcast_like, (rand(2), F), ArgumentError, "cannot be broadcast"),
    (
        lambda x, y: array.broadcast_like(x, y, [0]),
        (rand(2), F),
        ArgumentError,
        r"has the shape \(3,\) or \(1, 3\), got \(2,\)",
    ),
    (
        lambda x, y: array.broadcast_to_compatible_with(x, [y]),
        (F, rand(4)),
        ArgumentError,
        "broadcast_to_compatible_with",
    ),
    (lambda x, y: array.broadcast_to_compatible_with(x, y), (F, F), ArgumentError, "a list or tuple"),
    (lambda x: array.pad(x, [(0, 0)]), (F,), ArgumentError, "each of the 2 axes, got 1"),
    (lambda x: array.pad(x, [(0, 0), (0, -1)]), (F,), ArgumentError, "0 or more"),
    (lambda x: array.pad(x, [(0, 0), (1,)]), (F,), ArgumentError, r"\(before, after\)"),
    (lambda x: array.pad(x, [(0, 0), (1, 0)], 0.5), (I,), DTypeError, "0.5 does not fit"),
    (lambda x: array.reflection_pad2d(x, 2), (rand(1, 1, 2, 2),), ArgumentError, "smaller than what it reflects"),
    (lambda x: array.reflection_pad2d(x, 1), (F,), ArgumentError, "rank 4"),
    (lambda x: array.reflection_pad2d(x, (1, 1)), (F,), ArgumentError, r"\(left, right, top, bottom\)"),
    (
        lambda x: array.same_padding(x, "VALID", "NCHW", 3, 1),
        (rand(1, 1, 2, 2),),
        ArgumentError,
        "'SAME_UPPER', got 'VALID'",
    ),
    (
        lambda x: array.same_padding(x, "SAME", "NCHW", 3, 1),
        (CUBE,),
        ArgumentError,
        "data_format is 'NCW' or 'NWC', got 'NCHW'",
    ),
    (
        lambda x: array.same_padding(x, "SAME", "NCW", (3, 3), 1),
        (CUBE,),
        ArgumentError,
        "kernel_size is an int > 0 or a list of 1 of them",
    ),
]

JOINS: list[Case] = [
    (lambda x, y: array.concat([x, y], 1), (F, rand(4, 3)), ArgumentError, "differ on axis 1 only"),
    (lambda x, y: array.concat([x, y], 0), (F, CUBE), ArgumentError, "differ on axis 0 only"),
    (lambda x, y: array.concat([x, y]), (F, I), DTypeError, "float32, int32; cast them"),
    (lambda x: array.concat([x, x], 0, 3), (F,), ArgumentError, "gives 4 elements on axis 0, max_dim_size is 3"),
    (lambda x: array.concat([]), (F,), ArgumentError, "at least one blob"),
    (lambda x: array.concat(), (F,), ArgumentError, "either inputs or values"),
    (lambda x: array.concat([x], values=[x]), (F,), ArgumentError, "either inputs or values"),
    (lambda x: array.concat([x, 1.0]), (F,), DTypeError, "concat takes blobs, got float 1.0"),
    (array.concat, (F,), ArgumentError, "a list or tuple, got <Blob"),
    (lambda x, y: array.stack([x, y]), (F, ROW), ArgumentError, "blobs of one shape"),
    (lambda x: array.stack([x], 3), (F,), ArgumentError, "from -3 to 2, got 3"),
    (lambda c: array.where(c, c), (FLAGS,), ArgumentError, "where takes both x and y, or neither"),
    (array.where, (F, F, F), DTypeError, "a condition is an integer blob .*got float32"),
    (array.where, (FLAGS, F, I), DTypeError, "float32 and int32"),
    (lambda c: array.where(c, 1, 2), (FLAGS,), ArgumentError, "at least one operand must be a blob"),
    (
        lambda x, m: array.masked_fill(x, m, 1),
        (rand(4), FLAGS),
        ArgumentError,
        r"x of shape \(4,\) and the mask of shape \(2, 3\) cannot be broadcast",
    ),
    (lambda x, m: array.masked_fill(x, m, "0"), (F, FLAGS), DTypeError, "got str '0'"),
]

PARTS: list[Case] = [
    (lambda x: array.slice(x, [0], [1]), (F,), ArgumentError, "each of the 2 axes"),
    (
        lambda x: array.slice(x, [0, 2], [1, 2]),
        (F,),
        ArgumentError,
        "begin 2 and size 2 do not lie inside axis 1, which has 3",
    ),
    (lambda x: array.slice(x, [0, -4], [1, 1]), (F,), ArgumentError, "do not lie inside axis 1"),
    (lambda x: array.slice(x, [0, 0], [1, 0]), (F,), ArgumentError, "do not lie inside axis 1"),
    (lambda x: array.slice(x, [0, 0.5], [1, 1]), (F,), ArgumentError, "begin holds ints or None"),
    (lambda x: array.slice_v2(x, [(0, 1, 1)] * 3), (F,), ArgumentError, "3 slices for 2 axes"),
    (lambda x: array.slice_v2(x, [(0, 1, 0)]), (F,), ArgumentError, "step of axis 0 is 0"),
    (lambda x: array.slice_v2(x, [(2, None, None)]), (F,), ArgumentError, "takes nothing of axis 0, which has 2"),
    (lambda x: array.slice_v2(x, [0]), (F,), ArgumentError, r"a slice is \(start, stop, step\)"),
    (
        lambda x, u: array.slice_update(x, u, [(0, 1, 1)]),
        (F, F),
        ArgumentError,
        r"take the shape \(1, 3\), the update has \(2, 3\)",
    ),
    (lambda x, u: array.slice_update(x, u, []), (F, I), DTypeError, "float32, int32"),
    (array.gather, (F, F), DTypeError, "indices are an integer blob, got float32"),
    (lambda x, i: array.gather(x, i, axis=2), (F, I), ArgumentError, "got 2"),
    (lambda x, i: array.gather(x, i, axis=0, batch_dims=1), (F, I), ArgumentError, "batch_dims 1 takes axis 1"),
    (lambda x, i: array.gather(x, i, batch_dims=1), (rand(3, 4), I), ArgumentError, "begin with params' first axes"),
    (lambda x, i: array.gather(x, i, batch_dims=-1), (F, I), ArgumentError, "batch_dims is an int >= 0, got -1"),
    (lambda x, i: array.gather(x, i, True), (F, I), UnsupportedError, "validate_indices"),
    (array.gather_nd, (F, ints(2, 3)), ArgumentError, "1 to 2 elements"),
    (lambda x, i: array.dim_gather(x, 1, i), (F, ints(3, 3)), ArgumentError, "nowhere longer than x but on axis 1"),
    (lambda x, i: array.dim_gather(x, 0, i), (F, ints(3)), ArgumentError, "x's rank"),
    (lambda i: array.one_hot(i, 0), (I,), ArgumentError, "depth is an int > 0, got 0"),
    (lambda i: array.one_hot(i, 3, 0.9, dtype=dtypes.int32), (I,), DTypeError, "0.9 does not fit"),
    (lambda i: array.one_hot(i, 3), (F,), DTypeError, "indices are an integer blob"),
    (
        lambda i, u: array.scatter_nd(i, u, (2, 3)),
        (PAIRS, rand(3)),
        ArgumentError,
        r"updates have the shape \(4,\).*got \(3,\)",
    ),
    (lambda i, u: array.scatter_nd(i, u, (2, 0)), (PAIRS, rand(4)), ArgumentError, "holds ints > 0"),
    (array.tensor_scatter_nd_update, (F, PAIRS, ints(4)), DTypeError, "float32, int32"),
    (array.tensor_scatter_nd_add, (ROW, PAIRS, rand(4)), ArgumentError, "1 to 1 elements"),
    (lambda x, i: array.unsorted_segment_sum(x, i, 0), (F, ints(2)), ArgumentError, "num_segments is an int > 0"),
    (lambda x, i: array.unsorted_segment_sum(x, i, 2, 1), (F, ints(2)), ArgumentError, "from axis 1 on"),
    (
        lambda x, i: array.unsorted_segment_sum_like(x, i, x, 2),
        (F, ints(2)),
        ArgumentError,
        "axis is an int from -2 to 1, got 2",
    ),
    (lambda x, i: array.unsorted_batch_segment_sum(x, i, 2), (F, ints(3)), ArgumentError, "begins with the shape"),
    (lambda x: array.sort(x, direction="UP"), (F,), ArgumentError, "'ASCENDING' or 'DESCENDING', got 'UP'"),
    (lambda x: array.argsort(x, 2), (F,), ArgumentError, "got 2"),
]

NUMBERS: list[Case] = [
    (lambda x: array.constant([1, 2], dtypes.float32), (F,), UnsupportedError, "one Python number"),
    (lambda x: array.constant(1), (F,), ArgumentError, "needs a dtype"),
    (lambda x: array.constant(1.5, dtypes.int32), (F,), DTypeError, "constant .*1.5 does not fit"),
    (lambda x: array.constant(300, dtypes.int8), (F,), DTypeError, "300 does not fit"),
    (lambda x: array.constant("1", dtypes.int8), (F,), DTypeError, "got str '1'"),
    (lambda x: array.constant(1, dtypes.int8, ()), (F,), ArgumentError, "ints > 0"),
    (lambda x: array.zeros(3), (F,), ArgumentError, "a list or tuple, got 3"),
    (lambda x: array.constant_like(1.0, 2), (F,), DTypeError, "constant_like takes blobs"),
    (lambda x: array.range(0), (F,), ArgumentError, "there is nothing"),
    (lambda x: array.range(0, 3, 0), (F,), ArgumentError, "there is nothing"),
    (lambda x: array.range(0, 2.5, dtype=dtypes.int32), (F,), DTypeError, "2.5 does not fit"),
    (lambda x: array.elem_cnt(x, axis=2), (F,), ArgumentError, "axis is an int from -2 to 1, got 2"),
    (array.assign, (F, F), ArgumentError, "assign writes into a variable.*flow.get_variable"),
    (lambda x: array.assign(_variable(), x), (ROW,), ArgumentError, "the variable's shape"),
    (lambda x: array.assign(_variable(), x), (I,), DTypeError, "float32, int32"),
    (lambda x: array.parallel_cast(x, distribute="S(0)"), (F,), DTypeError, r"flow.distribute.split.*got 'S\(0\)'"),
    (lambda x: array.parallel_cast(x, gradient_distribute=0), (F,), DTypeError, "gradient_distribute"),
    (
        lambda x: array.hierarchical_parallel_cast(x, ["S0"]),
        (F,),
        ArgumentError,
        r"'S\(0\)', 'S\(1\)' ..., 'B' or 'P', got 'S0'",
    ),
    (lambda x: array.hierarchical_parallel_cast(x, ["B"], "never"), (F,), ArgumentError, "grad_mode .*got 'never'"),
    (random.bernoulli, (I,), DTypeError, "expected a float blob, got int32"),
    (lambda x: random.bernoulli(x, seed=0.5), (F,), ArgumentError, "a seed is an int of 64 bits, got 0.5"),
    (lambda x: random.coin_flip(0), (F,), ArgumentError, "batch_size is an int > 0"),
    (
        lambda x: random.coin_flip(2, probability=1.5),
        (F,),
        ArgumentError,
        "probability is a number >= 0 and <= 1, got 1.5",
    ),
    (lambda x: random.shuffle(3), (F,), DTypeError, "random.shuffle .*expected a blob, got int 3"),
    (lambda x: [random.coin_flip(2, name="flip") for _ in range(2)], (F,), NameError_, "op_name: flip already exist"),
]


def _variable():
    return get_variable("v", (2, 3), initializer=zeros_initializer(), trainable=False)


def _trace(call: Callable[..., Any], *inputs: np.ndarray):
    return trace(Sample("", call, inputs, call))


@pytest.mark.parametrize("call, inputs, kind, words", SHAPES + JOINS + PARTS + NUMBERS)
def test_refused(call: Callable[..., Any], inputs: tuple[np.ndarray, ...], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        _trace(call, *inputs)
    assert Path(__file__).name in str(caught.value) or "runner.py" in str(caught.value)


def test_unknown_dtype() -> None:
    with pytest.raises(UnsupportedError, match="Did you mean 'float32'"):
        _trace(lambda x: array.cast(x, "float33"), F)


@pytest.mark.parametrize(
    "call",
    [
        lambda: array.reshape(1, (1,)),
        lambda: array.constant(1, dtypes.int8),
        lambda: array.zeros((2,)),
        random.coin_flip,
    ],
)
def test_outside_a_job(call: Callable[[], Any]) -> None:
    with pytest.raises(OutsideJobError, match="outside a job function"):
        call()


def test_what_changes_nothing_gives_the_blob_itself() -> None:
    def call(x):
        assert array.cast(x, dtypes.float32) is x and array.cast(x, np.float32) is x
        assert array.concat([x], axis=1) is x
        return x

    _trace(call, F)


def test_layouts_are_noted() -> None:
    _, (blob,) = _trace(lambda x: array.parallel_cast(x, split(1), BROADCAST, name="here"), F)
    assert (
        blob.op_name == "here"
        and blob.distribute is split(1)
        and blob.node.kwargs == {"forward": "S(1)", "backward": "B"}
    )


def test_assign_gives_what_it_writes() -> None:

    def call(x):
        return system.assign(_variable(), x)

    (written,) = outputs(Sample("", call, (F,), call), [torch.from_numpy(F)])
    np.testing.assert_array_equal(written, F)


def test_seeds() -> None:
    """Given seeds stay; the job's own differ from op to op and are the same in every trace."""
    found: list[list[Any]] = []

    def call(x):
        flips = [random.coin_flip(4), random.coin_flip(4), random.shuffle(x), random.coin_flip(4, seed=9)]
        found.append(
            [b.node.kwargs["seed"] for b in flips] + [random.gen_seed(), random.gen_seed(), random.gen_seed(5)]
        )
        return flips

    _, blobs = _trace(call, F)
    _trace(call, F)
    assert found[0] == found[1]
    *drawn, given, first, second, third = found[0]
    assert len({*drawn, first[0], second[0]}) == 5 and given == 9
    assert (first[1], second[1], third) == (False, False, (5, True))
    assert [b.op_name for b in blobs] == ["CoinFlip", "CoinFlip_1", "Shuffle_0", "CoinFlip_2"]
