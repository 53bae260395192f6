"""Every op row of jobs in ONNX, through its aten ops: what ONNX Runtime computes against the reference of each sample."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from families import NOT_IN_ONNX, ONLY_IN_TRAIN_JOBS, SAMPLES, owners, rows_without_a_sample
from sample import Sample

import oneflow as flow
from oneflow.engine.core import dtype as dtypes
from oneflow.engine.onnx.exporter import DEFAULT_OPSET, LARGEST_OPSET, LEAST_OPSET
from oneflow.onnx import export

ROOT = Path(__file__).resolve().parents[2]
PREDICTED = [(s, f"{s.row}-{i}") for i, s in enumerate(SAMPLES) if not s.is_train]
EXPORTED = [(sample, name) for sample, name in PREDICTED if sample.row not in NOT_IN_ONNX]
REFUSED = [(sample, name) for sample, name in PREDICTED if sample.row in NOT_IN_ONNX]
# What the operator sets before these did not have: powers of integers, and sums of what is scattered.
SINCE_12 = {"math.pow"}
SINCE_16 = {
    "experimental.indexed_slices_reduce_sum",
    "experimental.unique_with_counts",
    "scatter_nd",
    "tensor_scatter_nd_add",
    "unsorted_batch_segment_sum",
    "unsorted_segment_sum",
}


def run(path: Path, feeds: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model whose inputs are fed in order."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: array for value, array in zip(session.get_inputs(), feeds, strict=True)})


def exported(call: Any, inputs: tuple[np.ndarray, ...], path: Path, opset: int = DEFAULT_OPSET) -> list[np.ndarray]:
    """What ONNX Runtime makes of a job whose body is ``call``."""
    flow.clear_default_session()
    fed = list(inputs) or [np.zeros(1, np.float32)]  # a job takes something
    defs = [flow.FixedTensorDef(a.shape, dtypes.from_numpy(a.dtype)) for a in fed]

    def body(xs=defs):  # type: ignore[no-untyped-def]
        out = call(*xs[: len(inputs)])
        return list(out) if isinstance(out, (tuple, list)) else [out]

    export(flow.global_function(type="predict")(body), None, path, opset=opset)
    return run(path, fed)


def check(sample: Sample, path: Path, opset: int = DEFAULT_OPSET) -> None:
    found = exported(sample.call, sample.inputs, path, opset)
    expected = sample.expect(*(torch.from_numpy(a.copy()) for a in sample.inputs))
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    for got, want in zip(found, expected, strict=True):
        want = torch.as_tensor(want).detach().numpy()
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, max(sample.rtol, 1e-4), max(sample.atol, 1e-5))


def test_every_row_has_a_sample_here():
    """A sample of a train job says nothing here: the row needs one without ``is_train``."""
    predicted = {row: family for row, family in owners().items() if row not in ONLY_IN_TRAIN_JOBS}
    missing = rows_without_a_sample(predicted, {sample.row for sample, _ in PREDICTED})
    assert not missing, "\n".join(missing)
    assert not (set(NOT_IN_ONNX) | ONLY_IN_TRAIN_JOBS) - set(owners())


@pytest.mark.parametrize("sample", [s for s, _ in REFUSED], ids=[name for _, name in REFUSED])
def test_a_row_that_onnx_cannot_express_is_refused_with_a_reason(sample, tmp_path):
    reason = re.escape(NOT_IN_ONNX[sample.row])
    with pytest.raises(NotImplementedError, match=rf"\.py:\d+: \S+ \('.*'\): ONNX cannot express it: {reason}"):
        exported(sample.call, sample.inputs, tmp_path / "model.onnx")


@pytest.mark.parametrize("sample", [s for s, _ in EXPORTED], ids=[name for _, name in EXPORTED])
def test_onnx_runtime_computes_what_the_reference_does(sample, tmp_path):
    check(sample, tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("opset", [LEAST_OPSET, 13, LARGEST_OPSET])
def test_other_opsets_compute_the_same_or_say_that_they_cannot(opset, tmp_path):
    younger = (SINCE_12 if opset < 12 else set()) | (SINCE_16 if opset < 16 else set())
    refused = set()
    for sample, _ in EXPORTED:
        try:
            check(sample, tmp_path / "model.onnx", opset)
        except NotImplementedError as error:
            assert re.search(rf"\.py:\d+: {re.escape(sample.row)} \('.*'\): .*opset", str(error))
            refused.add(sample.row)
    assert refused <= younger
    assert (SINCE_16 <= refused) == (opset < 16)


def values(*numbers: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(numbers, dtype)


INF, NAN = np.inf, np.nan
CORNERS = values(0.0, -0.0, 1.0, -1.0, 3.5, -3.5, INF, -INF, NAN)
X, Y = (a.ravel().copy() for a in np.meshgrid(CORNERS, CORNERS))
BYTES = values(-128, -3, -1, 0, 1, 5, 100, 127, dtype=np.int8)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: flow.math.less_equal(x, y),
        lambda x, y: flow.math.greater_equal(x, y),
        lambda x, y: flow.math.not_equal(x, y),
        lambda x, y: flow.math.logical_and(x, y),
        lambda x, y: flow.math.maximum(x, y),
        lambda x, y: flow.math.minimum(x, y),
        lambda x, y: flow.math.divide(x, y),
        lambda x, y: flow.math.xlogy(x, y),
        lambda x, y: flow.math.xdivy(x, y),
        lambda x, y: flow.math.expm1(x) + y * 0,
        lambda x, y: flow.math.log1p(x) + y * 0,
        lambda x, y: flow.math.reciprocal_no_nan(x) + y * 0,
        lambda x, y: flow.math.softplus(x) + y * 0,
        lambda x, y: flow.math.log_sigmoid(x) + y * 0,
        lambda x, y: flow.nn.relu6(x) + y * 0,
        lambda x, y: flow.count_not_finite(x) + flow.count_not_finite(y),
        lambda x, y: 2.0 / x + y * 0,
        lambda x, y: x / 0 + y * 0,
    ],
)
def test_infinities_zeros_and_what_is_no_number_are_treated_alike(call, tmp_path):
    found = exported(call, (X, Y), tmp_path / "model.onnx")
    np.testing.assert_allclose(found[0], compiled(call, (X, Y)), 1e-5, 1e-6)


FINITE = CORNERS[np.isfinite(CORNERS)]
FX, FY = (a.ravel().copy() for a in np.meshgrid(FINITE, FINITE))


@pytest.mark.parametrize(
    "operation", [flow.math.mod, flow.math.floordiv, flow.math.atan2], ids=["mod", "floordiv", "atan2"]
)
def test_signs_and_zeros_of_both_operands_are_treated_alike(operation, tmp_path):
    found = exported(lambda x, y: operation(x, y), (FX, FY), tmp_path / "model.onnx")
    expected = compiled(lambda x, y: operation(x, y), (FX, FY))
    np.testing.assert_allclose(found[0], expected, 1e-5, 1e-6)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(
        np.signbit(found[0][finite & (expected != 0)]), np.signbit(expected[finite & (expected != 0)])
    )


def test_a_quotient_just_below_a_whole_number_is_not_rounded_up(tmp_path):
    """1.0 // 0.1 is 9, although 1.0 / 0.1 is 10."""
    found = exported(
        lambda x, y: flow.math.floordiv(x, y), (values(1.0, 6.0), values(0.1, 0.1)), tmp_path / "model.onnx"
    )
    np.testing.assert_array_equal(found[0], torch.floor_divide(torch.tensor([1.0, 6.0]), torch.tensor([0.1, 0.1])))


def test_small_numbers_keep_their_digits(tmp_path):
    x = values(1e-7, -1e-7, 3e-5, -0.499, 0.501)
    for call, function in ((lambda x: flow.math.log1p(x), np.log1p), (lambda x: flow.math.expm1(x), np.expm1)):
        np.testing.assert_allclose(
            exported(call, (x,), tmp_path / "model.onnx")[0], function(x.astype(np.float64)), 1e-6
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + x,
        lambda x: x * 3,
        lambda x: flow.math.maximum(x, 7),
        lambda x: flow.math.clip_by_value(x, -2, 9),
        lambda x: flow.math.relu(x),
        lambda x: flow.math.negative(x),
        lambda x: flow.math.reduce_sum(x),
        lambda x: flow.math.argmax(x),
        lambda x: flow.sort(x, 0, "DESCENDING"),
        lambda x: flow.math.equal(x, 5),
        lambda x: flow.math.add_n([x, x, x]),
    ],
)
def test_eight_bit_integers_wrap_as_in_the_job(call, tmp_path):
    found = exported(call, (BYTES,), tmp_path / "model.onnx")[0]
    expected = compiled(call, (BYTES,))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def compiled(call: Any, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """What the job itself computes."""
    flow.clear_default_session()
    defs = [flow.FixedTensorDef(a.shape, dtypes.from_numpy(a.dtype)) for a in inputs]

    def body(xs=defs):  # type: ignore[no-untyped-def]
        return call(*xs)

    return flow.global_function(type="predict")(body)(list(inputs)).get().numpy()


def test_the_page_on_onnx_names_every_row_that_is_not_exported():
    text = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
    table = text.split("### Ops of jobs that are not exported\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", table, re.MULTILINE)
    assert [row for row, _ in rows] == sorted(NOT_IN_ONNX)
    assert all(reason.startswith(NOT_IN_ONNX[row]) for row, reason in rows)
