"""Ops as test files of 2020 and 2021 call them: inputs of varying size, gradients by name, settings that change
nothing."""

from __future__ import annotations

import importlib
import operator
from typing import Any

import numpy as np
import pytest
import torch

import oneflow as flow
import oneflow.typing as tp
from oneflow.engine.core.errors import ArgumentError, UnsupportedError

R = np.random.RandomState(0)


def mirrored() -> Any:
    config = flow.FunctionConfig()
    config.default_logical_view(flow.scope.mirrored_view())
    return config


def rand(*shape: int) -> np.ndarray:
    return R.rand(*shape).astype(np.float32)


def test_in_top_k_compares_the_sizes_of_each_call() -> None:
    @flow.global_function(function_config=mirrored())
    def job(
        targets: tp.ListNumpy.Placeholder((8,), dtype=flow.int32), predictions: tp.ListNumpy.Placeholder((5, 4))
    ) -> tp.ListNumpy:
        found = flow.math.in_top_k(targets, predictions, k=1)
        assert found.shape == (5,) and found.is_dynamic
        return found

    predictions = rand(3, 4)
    assert job([predictions.argmax(1).astype(np.int32)], [predictions])[0].tolist() == [1, 1, 1]
    with pytest.raises(ArgumentError, match=r"targets have shape \(3,\) for these predictions, got \(2,\)"):
        job([np.zeros(2, np.int32)], [predictions])


def test_concat_is_as_long_as_it_may_become() -> None:
    @flow.global_function(function_config=mirrored())
    def job(a: tp.ListNumpy.Placeholder((15, 2)), b: tp.ListNumpy.Placeholder((20, 2))) -> tp.ListNumpy:
        joined = flow.concat([a, b], axis=0, max_dim_size=30)
        assert joined.shape == (30, 2) and joined.is_dynamic
        return joined

    assert job([rand(3, 2)], [rand(4, 2)])[0].shape == (7, 2)
    with pytest.raises(ArgumentError, match="concat gives 35 elements on axis 0, max_dim_size is 30"):
        job([rand(15, 2)], [rand(20, 2)])


def test_elements_are_counted_in_each_call() -> None:
    @flow.global_function(function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((15, 2))) -> tp.ListNumpy:
        return flow.elem_cnt(inputs=x, dtype=flow.int64)

    assert [job([rand(n, 2)])[0].tolist() for n in (15, 3, 0)] == [[30], [6], [0]]


def test_an_empty_piece_is_sliced_to_an_empty_piece() -> None:
    @flow.global_function(function_config=mirrored())
    def job(x: tp.ListNumpy.Placeholder((5, 4))) -> tp.Bundle[tp.ListNumpy]:
        return (
            flow.slice_v2(x, [(None, None, None), (1, 3, 1)]),
            flow.slice(x, [0, 1], [-1, 2]),
            flow.slice_v2(x, [(None, None, -1)]),
        )

    assert [pieces[0].shape for pieces in job([rand(0, 4)])] == [(0, 2), (0, 2), (0, 4)]


def test_a_noise_shape_may_be_that_of_the_blob() -> None:
    def job_of(shape: tuple[int, ...]) -> Any:
        @flow.global_function()
        def job(x: tp.Numpy.Placeholder((20, 30))) -> tp.Numpy:
            return flow.nn.random_mask_like(x, 0.25, seed=1, noise_shape=shape, name="mask")

        return job

    assert 0.6 < job_of((20, 30))(rand(20, 30)).mean() < 0.9
    flow.clear_default_session()
    with pytest.raises(UnsupportedError, match=r"noise_shape is that of the blob, \(20, 30\): .* got \(20, 1\)"):
        job_of((20, 1))(rand(20, 30))


def test_seeds_can_be_made_outside_of_jobs() -> None:
    assert flow.random.gen_seed(7) == (7, True)
    (first, given), (second, _) = flow.random.gen_seed(), flow.random.gen_seed()
    assert not given and first != second


def test_the_gradients_of_layer_normalisation_by_name() -> None:
    x, dy, gamma = rand(4, 3, 5), rand(4, 3, 5), rand(5)

    @flow.global_function()
    def job(
        x: tp.Numpy.Placeholder((4, 3, 5)), dy: tp.Numpy.Placeholder((4, 3, 5)), mean: tp.Numpy.Placeholder((4, 3)),
        inverse: tp.Numpy.Placeholder((4, 3)), gamma: tp.Numpy.Placeholder((5,)),
    ) -> tp.Bundle[tp.Numpy]:  # fmt: skip
        by_x = flow.layers.layer_norm_grad(dy, x, mean, inverse, begin_norm_axis=2)
        return (by_x, *flow.layers.layer_norm_param_grad(dy, x, gamma, begin_params_axis=2))

    mean, inverse = x.mean(-1), 1 / np.sqrt(x.var(-1) + 1e-5)
    tensors = [torch.tensor(value, requires_grad=True) for value in (x, gamma, np.zeros(5, np.float32))]
    (by_x,) = torch.autograd.grad(torch.nn.functional.layer_norm(tensors[0], (5,)), tensors[0], torch.tensor(dy))
    by_parameters = torch.autograd.grad(
        tensors[0] * tensors[1] + tensors[2], (tensors[0], tensors[2], tensors[1]), torch.tensor(dy)
    )
    for found, expected in zip(job(x, dy, mean, inverse, gamma), (by_x, *by_parameters), strict=True):
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


def test_the_gradient_of_padding_by_name() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((5, 4))) -> tp.Numpy:
        return flow.pad_grad(x, [(1, 1), (0, 2)])

    x = rand(5, 4)
    np.testing.assert_array_equal(job(x), x[1:-1, :-2])


WRONG: dict[str, tuple[Any, str]] = {
    "more padding than there is": (lambda x: flow.pad_grad(x, [(3, 2), (0, 0)]), r"pad_grad takes \(before, after\) for every axis of what pad has made"),
    "a mean of another shape": (lambda x: flow.layers.layer_norm_grad(x, x, x, x), r"mean and inv_variance of shape \(5,\)"),
    "a gamma of another shape": (lambda x: flow.layers.layer_norm_param_grad(x, x, x), r"gamma of shape \(4,\)"),
    "one of two": (lambda x: flow.where(x, x), "where takes both x and y, or neither"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_refused(case: str) -> None:
    body, message = WRONG[case]

    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((5, 4))) -> tp.Numpy:
        return body(x)

    with pytest.raises(ArgumentError, match=message):
        job(rand(5, 4))


def test_the_fused_softmax_is_in_both_namespaces() -> None:
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2, 3, 3))) -> tp.Numpy:
        assert flow.nn.fused_scale_tril_softmax_dropout is flow.math.fused_scale_tril_softmax_dropout
        return flow.math.fused_scale_tril_softmax_dropout(x, diagonal=0, fill_value=float("-inf"), scale=0.5)

    x = rand(2, 3, 3)
    weights = np.where(np.tri(3), np.exp(x * 0.5), 0)
    np.testing.assert_allclose(job(x), weights / weights.sum(-1, keepdims=True), rtol=1e-5)


def test_settings_of_the_last_releases_change_nothing() -> None:
    config = flow.FunctionConfig()
    config.prune_depend_ops(True)
    config.prune_depend_ops()


@pytest.mark.parametrize("path, name, public", [
    ("oneflow.python.ops.optimizer", "PolynomialSchduler", "optimizer.PolynomialSchduler"), ("oneflow.python.ops.math_ops", "relu", "math.relu"),
    ("oneflow.python.ops.nn_ops", "conv2d", "nn.conv2d"), ("oneflow.python.ops.array_ops", "one_hot", "one_hot"),
    ("oneflow.python.ops.layers", "dense", "layers.dense"), ("oneflow.python.ops.initializer_util", "truncated_normal", "truncated_normal"),
    ("oneflow.python.ops.regularizer_util", "l2", "regularizers.l2"), ("oneflow.python.framework.typing", "Numpy", "typing.Numpy"),
    ("oneflow.python.framework.input_blob_def", "FixedTensorDef", "FixedTensorDef"), ("oneflow.python.framework.id_util", "UniqueStr", "util.unique_str"),
    ("oneflow._oneflow_internal", "distribute", "distribute"), ("oneflow.experimental", "unittest", "unittest"), ("oneflow.experimental", "util", "util"),
])  # fmt: skip
def test_earlier_paths_lead_to_the_public_names(path: str, name: str, public: str) -> None:
    assert getattr(importlib.import_module(path), name) is operator.attrgetter(public)(flow)


def test_tensors_are_made_as_in_2021() -> None:
    early = flow.experimental.Tensor
    made = early(np.ones((2, 3)), dtype=flow.float32, device=flow.device("cpu"), requires_grad=True)
    assert made.dtype is flow.float32 and made.requires_grad and isinstance(made, early) and type(made) is torch.Tensor
    assert (
        early(2, 3).shape == (2, 3) and early([1, 2]).tolist() == [1.0, 2.0] and early(np.ones(2)).dtype is flow.float32
    )


def test_summaries_take_inputs_of_varying_size(tmp_path: Any) -> None:
    flow.summary.create_summary_writer(str(tmp_path))

    @flow.global_function(function_config=mirrored())
    def job(
        value: tp.ListNumpy.Placeholder((10,)),
        step: tp.ListNumpy.Placeholder((10,), dtype=flow.int64),
        tag: tp.ListNumpy.Placeholder((10,), dtype=flow.int8),
    ) -> None:
        flow.summary.scalar(value, step, tag)

    job([rand(1)], [np.array([3])], [np.frombuffer(b"loss", np.int8)])
    with pytest.raises(ArgumentError, match=r"flow.summary.scalar takes one number, got an array of shape \(2,\)"):
        job([rand(2)], [np.array([4])], [np.frombuffer(b"loss", np.int8)])
    flow.summary.close_summary_writer()
