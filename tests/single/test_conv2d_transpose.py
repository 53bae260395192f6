"""``nn.conv2d_transpose`` against its definition: the gradient of a convolution with respect to its input, the zeros of
which are written out."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from sample import rand

import oneflow as flow
import oneflow.typing as tp
from oneflow.onnx import export

IN, OUT, BATCH = 3, 2, 2
PADDINGS = ["SAME", "SAME_UPPER", "SAME_LOWER", "VALID"]
CASES = list(product(range(2, 6), range(1, 4), (7, 8), PADDINGS))
"""The kernel, the stride, the height of the result, which is one less than its width, and the padding."""


def zeros(size: int, kernel: int, stride: int, padding: str) -> tuple[int, int]:
    """How many a convolution puts before and after a dim: for "SAME" as many as make ceil(size / stride) windows, an
    odd one at the end."""
    total = 0 if padding == "VALID" else max(((size + stride - 1) // stride - 1) * stride + kernel - size, 0)
    small, large = total // 2, total - total // 2
    return (large, small) if padding == "SAME_LOWER" else (small, large)


def windows(size: int, kernel: int, stride: int, padding: str) -> int:
    return (size + sum(zeros(size, kernel, stride, padding)) - kernel) // stride + 1


def definition(x: np.ndarray, w: np.ndarray, size: tuple[int, int], stride: int, padding: str) -> np.ndarray:
    image = torch.zeros(x.shape[0], w.shape[1], *size, dtype=torch.float64, requires_grad=True)
    (top, bottom), (left, right) = (zeros(n, w.shape[2], stride, padding) for n in size)
    made = F.conv2d(F.pad(image, (left, right, top, bottom)), torch.from_numpy(w).double(), stride=stride)
    return torch.autograd.grad(made, image, torch.from_numpy(x).double())[0].numpy()


def arrays(case: tuple[int, int, int, str]) -> tuple[np.ndarray, np.ndarray]:
    kernel, stride, height, padding = case
    sizes = [windows(n, kernel, stride, padding) for n in (height, height + 1)]
    return rand(BATCH, IN, *sizes), rand(IN, OUT, kernel, kernel, seed=1)


def expected() -> list[np.ndarray]:
    return [definition(*arrays(case), (case[2], case[2] + 1), case[1], case[3]) for case in CASES]


def last(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def all_cases(data_format: str) -> tuple[Any, list[np.ndarray]]:
    """A job that runs every case, and its inputs: values and filters in turn."""
    channels_last = data_format == "NHWC"
    inputs = [last(a) if channels_last else a for case in CASES for a in arrays(case)]
    defs = [flow.FixedTensorDef(a.shape) for a in inputs]

    @flow.global_function("predict")
    def job(xs=defs):
        made = []
        for x, w, (_, stride, height, padding) in zip(xs[::2], xs[1::2], CASES):
            shape = (BATCH, height, height + 1, OUT) if channels_last else (BATCH, OUT, height, height + 1)
            made.append(flow.nn.conv2d_transpose(x, w, shape, stride, padding, data_format))
            assert made[-1].shape == shape
        return made

    return job, inputs


def assert_all(found: list[np.ndarray], data_format: str) -> None:
    for case, got, want in zip(CASES, found, expected(), strict=True):
        np.testing.assert_allclose(got, last(want) if data_format == "NHWC" else want, 1e-4, 1e-5, err_msg=str(case))


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_it_is_the_gradient_of_the_convolution(data_format: str) -> None:
    job, inputs = all_cases(data_format)
    assert_all([result.numpy() for result in job(inputs).get()], data_format)


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
def test_onnx_runtime_computes_the_same(data_format: str, tmp_path: Path) -> None:
    job, inputs = all_cases(data_format)
    export(job, None, tmp_path / "net.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), options, providers=["CPUExecutionProvider"])
    assert_all(
        session.run(None, {value.name: a for value, a in zip(session.get_inputs(), inputs, strict=True)}), data_format
    )


def test_the_odd_zero_comes_at_the_end() -> None:
    """Kernel 5 and stride 2 make 2n + 3 columns of n; of the three too many one is cut in front, and two behind."""

    @flow.global_function("predict")
    def job(x: tp.Numpy.Placeholder((1, 1, 1, 2)), w: tp.Numpy.Placeholder((1, 1, 1, 5))):
        return flow.nn.conv2d_transpose(x, w, (1, 1, 2, 4), 2, "SAME")

    made = job(np.array([[[[1.0, 100.0]]]], np.float32), np.array([[[[1.0, 2, 3, 4, 5]]]], np.float32)).get().numpy()
    # whole: 1 2 103 204 305 400 500; the filter has one row, so the second row of the result is reached by nothing
    np.testing.assert_array_equal(made, [[[[2, 103, 204, 305], [0, 0, 0, 0]]]])


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize(("batch", "channels"), [(BATCH, OUT), (7, OUT), (BATCH, 9), (0, -1)])
def test_batch_and_channels_of_output_shape_are_not_looked_at(batch: int, channels: int, data_format: str) -> None:
    x, w = rand(BATCH, IN, 4, 4), rand(IN, OUT, 5, 5, seed=1)
    channels_last = data_format == "NHWC"
    given = [last(a) if channels_last else a for a in (x, w)]
    shape = [batch, 8, 8, channels] if channels_last else [batch, channels, 8, 8]

    @flow.global_function("predict")
    def job(xs=[flow.FixedTensorDef(a.shape) for a in given]):  # noqa: B006 - a declaration
        return flow.nn.conv2d_transpose(*xs, shape, 2, "SAME", data_format)

    want = definition(x, w, (8, 8), 2, "SAME")
    np.testing.assert_allclose(job(given).get().numpy(), last(want) if channels_last else want, 1e-4, 1e-5)
