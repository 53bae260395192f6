"""Computing with blobs that have as many rows as the data says: numpy on the rows that there are is the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import JobError, UnsupportedError

MASK = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0]], np.float32)
TABLE = np.random.RandomState(0).uniform(0.5, 2, (6, 3)).astype(np.float32)
A = np.argwhere(MASK).astype(np.int32)
F, R, G = A.astype(np.float32), A[:, 0], TABLE[A[:, 0]]

# What is computed of the places a, of them as floats f, of their rows r, and of the rows g of a table that they name.
COMPUTED: dict[str, tuple[Any, Any]] = {
    "unary": (lambda a, f, r, g, x: flow.math.exp(f), np.exp(F)),
    "numbers": (lambda a, f, r, g, x: f * 2 + 1, F * 2 + 1),
    "one count": (lambda a, f, r, g, x: f + flow.cast(a, flow.float), F + F),
    "a vector": (lambda a, f, r, g, x: f + flow.ones((2,)), F + 1),
    "sum": (lambda a, f, r, g, x: flow.math.reduce_sum(f), [F.sum()]),
    "mean of rows": (lambda a, f, r, g, x: flow.math.reduce_mean(f, [0]), F.mean(0)),
    "largest": (lambda a, f, r, g, x: flow.math.reduce_max(-1 * f, 0, True), (-F).max(0, keepdims=True)),
    "smallest": (lambda a, f, r, g, x: flow.math.reduce_min(a + 1), [A.min() + 1]),
    "product": (lambda a, f, r, g, x: flow.math.reduce_prod(g), [np.prod(G)]),
    "along rows": (lambda a, f, r, g, x: flow.math.reduce_sum(f, 1), F.sum(1)),
    "deviation along rows": (lambda a, f, r, g, x: flow.math.reduce_std(f, 1), F.std(1)),
    "gather": (lambda a, f, r, g, x: g, G),
    "gather_nd": (lambda a, f, r, g, x: flow.gather_nd(x, a), MASK[MASK != 0]),
    "where": (lambda a, f, r, g, x: flow.gather_nd(x, flow.where(x)), MASK[MASK != 0]),
    "elem_cnt": (lambda a, f, r, g, x: flow.elem_cnt(a), [A.size]),
    "concat": (lambda a, f, r, g, x: flow.concat([f, g], 1), np.concatenate([F, G], 1)),
    "column": (lambda a, f, r, g, x: flow.squeeze(flow.slice_v2(a, [(None, None, None), (1, 2, 1)]), [1]), A[:, 1]),
    "scatter_nd": (lambda a, f, r, g, x: flow.scatter_nd(a, flow.gather_nd(x, a), (5, 4)), MASK),
    "segments": (lambda a, f, r, g, x: flow.unsorted_segment_sum(g, r, 5), np.stack([G[R == i].sum(0) for i in range(5)])),
    "softmax": (lambda a, f, r, g, x: flow.nn.softmax(f, 1), np.exp(F) / np.exp(F).sum(1, keepdims=True)),
    "transpose": (lambda a, f, r, g, x: flow.transpose(flow.expand_dims(f, 2), [0, 2, 1]), F[:, None]),
    "one_hot": (lambda a, f, r, g, x: flow.one_hot(r, 6, dtype=flow.float), np.eye(6)[R]),
    "weights": (lambda a, f, r, g, x: flow.matmul(g, flow.ones((3, 2))), G @ np.ones((3, 2))),
    "reshape": (lambda a, f, r, g, x: flow.reshape(a, [-1, 2, 1]), A[..., None]),
}  # fmt: skip


def job_of(compute: Any) -> Any:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((5, 4)), table: tp.Numpy.Placeholder((6, 3))) -> tp.Numpy:
        places = flow.argwhere(x)
        rows = flow.squeeze(flow.slice_v2(places, [(None, None, None), (0, 1, 1)]), [1])
        return compute(places, flow.cast(places, flow.float), rows, flow.gather(table, rows), x)

    return job


@pytest.mark.parametrize("case", COMPUTED)
def test_rows_are_computed_with(case: str) -> None:
    compute, expected = COMPUTED[case]
    found = job_of(compute)(MASK, TABLE)
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


REFUSED: dict[str, Any] = {
    "their order": lambda a, f, r, g, x: flow.transpose(a, [1, 0]),
    "another count": lambda a, f, r, g, x: a + flow.argwhere(x),
    "one behind the other": lambda a, f, r, g, x: flow.concat([a, a], 0),
    "other rows": lambda a, f, r, g, x: flow.reshape(a, [2, -1]),
    "some rows": lambda a, f, r, g, x: flow.slice_v2(a, [(1, 3, 1)]),
    "rows that are whole": lambda a, f, r, g, x: a + flow.constant(1, flow.int32, (20, 2)),
    "deviation of rows": lambda a, f, r, g, x: flow.math.reduce_std(f, 0),
    "several results": lambda a, f, r, g, x: flow.argwhere(a),
    "an op that knows nothing of rows": lambda a, f, r, g, x: flow.pad(f, [(0, 0), (1, 1)]),
    "rows out of rows": lambda a, f, r, g, x: flow.gather(f, r),
    "a weight of rows": lambda a, f, r, g, x: flow.matmul(flow.ones((2, 20)), f),
    "updates that are whole": lambda a, f, r, g, x: flow.scatter_nd(a, flow.ones((20,)), (5, 4)),
    "elements of an axis": lambda a, f, r, g, x: flow.elem_cnt(a, axis=1),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_takes_rows_apart_is_refused(case: str) -> None:
    with pytest.raises(UnsupportedError, match=r"test_job_rows.py:\d+: .*(data says|numpy)"):
        job_of(REFUSED[case])(MASK, TABLE)


def test_rows_that_are_not_there_have_no_gradient() -> None:
    seen: list[Any] = []

    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((6,), dtype=flow.int32)) -> tp.Numpy:
        w = flow.get_variable("w", (6, 3), initializer=flow.random_uniform_initializer(0.5, 1))
        (rows,) = flow.nonzero(x)
        chosen = flow.gather(w, rows)
        flow.watch_diff(chosen, lambda gradient: seen.append(gradient.numpy()))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0).minimize(
            flow.math.reduce_mean(flow.math.log(chosen - 0.25))
        )
        return flow.identity(w)

    before = job(np.int32([0, 1, 0, 1, 1, 0]))
    expected = before.copy()
    expected[[1, 3, 4]] -= 1 / (before[[1, 3, 4]] - 0.25) / 9
    np.testing.assert_allclose(flow.get_all_variables()["w"].numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(seen[0], 1 / (before[[1, 3, 4]] - 0.25) / 9, rtol=1e-5)


def test_a_loss_of_rows_is_reduced_first() -> None:
    @flow.global_function("train")
    def job(x: tp.Numpy.Placeholder((6,))) -> None:
        w = flow.get_variable("w", (6, 3), initializer=flow.ones_initializer())
        loss = flow.gather(w, flow.nonzero(x)[0])
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0).minimize(loss)

    with pytest.raises(
        JobError, match="has as many rows as the data says; take their sum or mean first, with flow.math.reduce_mean"
    ):
        job(np.ones(6, np.float32))
