"""Names that jobs and tensors both have do both: the job's op inside a job, the tensor's function outside."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import oneflow as flow
from oneflow.engine.core.errors import GlobalTensorError
from oneflow.engine.eager import both

X = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -2.0]], np.float32)
I = np.array([[2], [0]], np.int32)
# name: the job's way to say it, the tensor's, and what both give
SAID = {
    "argsort": (lambda x, i: flow.argsort(x, axis=1), lambda x, i: flow.argsort(x, dim=1), X.argsort(1)),
    "argwhere": (lambda x, i: flow.argwhere(i), lambda x, i: flow.argwhere(i), np.argwhere(I)),
    "broadcast_like": (
        lambda x, i: flow.broadcast_like(i, x),
        lambda x, i: flow.broadcast_like(i, x),
        np.broadcast_to(I, X.shape),
    ),
    "cast": (lambda x, i: flow.cast(x, flow.int32), lambda x, i: flow.cast(x, flow.int32), X.astype(np.int32)),
    "clamp": (lambda x, i: flow.clamp(x, min_value=0), lambda x, i: flow.clamp(x, min=0), X.clip(0)),
    "clip": (lambda x, i: flow.clip(x, min_value=0), lambda x, i: flow.clip(x, min=0), X.clip(0)),
    "concat": (
        lambda x, i: flow.concat([x, x], axis=1),
        lambda x, i: flow.concat([x, x], dim=1),
        np.concatenate([X, X], 1),
    ),
    "ctc_loss": (  # of three classes in two steps, the label 2 and its length 1
        lambda x, i: flow.ctc_loss(
            flow.reshape(x, (2, 1, 3)),
            flow.slice(i, [0, 0], [1, 1]),
            *(flow.constant(n, flow.int32, (1,)) for n in (2, 1)),
        ),
        lambda x, i: flow.ctc_loss(x.reshape(2, 1, 3), i[:1], torch.tensor([2]), torch.tensor([1])).reshape(1),
        [-np.log(np.exp(2 - 2) + np.exp(3 - 2) + np.exp(2 + 0.5))],
    ),
    "diag": (lambda x, i: flow.diag(x), lambda x, i: flow.diag(x), np.diag(X)),
    "expand": (lambda x, i: flow.expand(i, (2, 3)), lambda x, i: flow.expand(i, 2, 3), np.broadcast_to(I, X.shape)),
    "flatten": (lambda x, i: flow.flatten(x), lambda x, i: flow.flatten(x), X.ravel()),
    "gather": (
        lambda x, i: flow.gather(x, i, axis=1),
        lambda x, i: flow.gather(x, 1, i)[:, None].expand(2, 2, 1),
        None,
    ),
    "gather_nd": (lambda x, i: flow.gather_nd(x, i * 0), lambda x, i: flow.gather_nd(x, i * 0), np.stack([X[0], X[0]])),
    "in_top_k": (
        lambda x, i: flow.in_top_k(flow.reshape(i, (2,)), x, 1),
        lambda x, i: flow.in_top_k(i[:, 0], x, 1),
        [0, 0],
    ),
    "masked_fill": (
        lambda x, i: flow.masked_fill(x, i, 9.0),
        lambda x, i: flow.masked_fill(x, i != 0, 9.0),
        np.where(I != 0, 9, X),
    ),
    "matmul": (lambda x, i: flow.matmul(x, x, transpose_b=True), lambda x, i: flow.matmul(x, x.t()), X @ X.T),
    "nonzero": (lambda x, i: flow.nonzero(i)[0], lambda x, i: flow.nonzero(i)[:, 0], np.nonzero(I)[0]),
    "ones": (lambda x, i: flow.ones((2,)), lambda x, i: flow.ones(2), [1, 1]),
    "ones_like": (lambda x, i: flow.ones_like(x), lambda x, i: flow.ones_like(x), np.ones_like(X)),
    "pad": (lambda x, i: flow.pad(x, ((0, 0), (1, 0))), lambda x, i: flow.pad(x, (1, 0)), np.pad(X, ((0, 0), (1, 0)))),
    "repeat": (lambda x, i: flow.repeat(x, 1), lambda x, i: flow.repeat(x, 1, 1), X),
    "reshape": (lambda x, i: flow.reshape(x, (3, 2)), lambda x, i: flow.reshape(x, (3, 2)), X.reshape(3, 2)),
    "scatter_nd": (
        lambda x, i: flow.scatter_nd(i, x, (3, 3)),
        lambda x, i: flow.scatter_nd(i, x, (3, 3)),
        np.stack([X[1], X[0] * 0, X[0]]),
    ),
    "slice": (lambda x, i: flow.slice(x, [0, 1], [2, 2]), lambda x, i: flow.slice(x, [[0, 2, 1], [1, 3, 1]]), X[:, 1:]),
    "slice_update": (
        lambda x, i: flow.slice_update(x, flow.cast(i, flow.float32), [[0, 2, 1], [1, 2, 1]]),
        lambda x, i: flow.slice_update(x.clone(), i, [[0, 2, 1], [1, 2, 1]]),
        np.array([[3, 2, 2], [0.5, 0, -2]], np.float32),
    ),
    "sort": (lambda x, i: flow.sort(x), lambda x, i: flow.sort(x)[0], np.sort(X)),
    "squeeze": (lambda x, i: flow.squeeze(i, axis=[1]), lambda x, i: flow.squeeze(i, 1), I[:, 0]),
    "stack": (lambda x, i: flow.stack([x, x], axis=1), lambda x, i: flow.stack([x, x], dim=1), np.stack([X, X], 1)),
    "tensor_scatter_nd_update": (
        lambda x, i: flow.tensor_scatter_nd_update(flow.concat([x, x]), i, x),
        lambda x, i: flow.tensor_scatter_nd_update(flow.concat([x, x]), i, x),
        np.stack([X[1], X[1], X[0], X[1]]),
    ),
    "transpose": (lambda x, i: flow.transpose(x, perm=[1, 0]), lambda x, i: flow.transpose(x, 0, 1), X.T),
    "where": (lambda x, i: flow.where(i, x, x * 2), lambda x, i: flow.where(i, x, x * 2), np.where(I, X, X * 2)),
    "zeros": (lambda x, i: flow.zeros((2,)), lambda x, i: flow.zeros(2), [0, 0]),
    "zeros_like": (lambda x, i: flow.zeros_like(x), lambda x, i: flow.zeros_like(x), np.zeros_like(X)),
}
BOTH = sorted(name for name, value in vars(both).items() if hasattr(value, "of_job"))


def test_every_name_of_both_eras_is_in_the_table():
    assert BOTH == sorted(SAID)
    assert all(getattr(flow, name) is getattr(both, name) for name in BOTH)


@pytest.mark.parametrize("name", BOTH)
def test_a_name_of_both_eras_is_an_op_in_a_job_and_a_function_on_tensors(name):
    in_job, on_tensors, expected = SAID[name]

    @flow.global_function()
    def job(x=flow.FixedTensorDef(X.shape), i=flow.FixedTensorDef(I.shape, dtype=flow.int32)):
        return in_job(x, i)

    expected = X[:, I] if name == "gather" else np.asarray(expected)
    np.testing.assert_allclose(job(X, I).get(), expected, rtol=1e-6)
    if name == "gather":  # the job chooses slices, the tensor's function elements
        np.testing.assert_array_equal(
            flow.gather(torch.from_numpy(X), 1, torch.from_numpy(I)), np.take_along_axis(X, I.astype(np.int64), 1)
        )
    else:
        np.testing.assert_allclose(on_tensors(torch.from_numpy(X), torch.from_numpy(I)), expected, rtol=1e-6)


def test_a_function_of_tensors_refuses_a_blob():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2, 3))):
        return flow.relu(x)

    with pytest.raises(
        TypeError,
        match=r"test_eras.py:\d+: relu takes tensors and got a blob; inside a job use the ops of flow, flow.math and flow.nn",
    ):
        job(X)


MAKERS = (
    "arange",
    "empty",
    "eye",
    "full",
    "hann_window",
    "linspace",
    "normal",
    "ones",
    "rand",
    "randint",
    "randn",
    "randperm",
    "tensor",
    "zeros",
)
TAKES = {
    "full": ((2,), 1),
    "linspace": (0, 1, 2),
    "normal": (0, 1, (2,)),
    "randint": (5, (2,)),
}  # the others a size, or a value


@pytest.mark.parametrize("name", MAKERS)
def test_a_placement_that_is_none_is_refused_clearly(name):
    message = r"placement is a flow.placement, such as flow.placement\('cpu', \[0, 1\]\); got 'cpu'"
    with pytest.raises(GlobalTensorError, match=rf"test_eras.py:\d+: {message}"):
        getattr(flow, name)(*TAKES.get(name, (2,)), placement="cpu", sbp="B")


ADDED = """
import json, torch
kinds = (torch.Tensor, torch.nn.Module, torch.nn.Parameter)
before = [(kind, dict(vars(kind)), set(dir(kind))) for base in kinds for kind in base.__mro__]
import oneflow
changed = [name for kind, held, _ in before for name, value in held.items() if vars(kind).get(name) is not value]
added = {kind: sorted(set(dir(kind)) - names) for kind, _, names in before}
print(json.dumps([added[torch.Tensor], added[torch.nn.Module], changed]))
"""


def test_importing_oneflow_adds_names_to_tensors_and_changes_none():
    from oneflow.engine.eager.tensor_methods import METHODS, PROPERTIES
    from oneflow.engine.global_tensor.methods import MODULE_METHODS, TENSOR_METHODS

    run = subprocess.run([sys.executable, "-c", ADDED], capture_output=True, text=True, check=True, timeout=120)
    added, of_modules, changed = json.loads(run.stdout)
    assert (
        added == sorted({*METHODS, *PROPERTIES, *TENSOR_METHODS})
        and of_modules == sorted(MODULE_METHODS)
        and not changed
    )


MOCKED = """
import sys, oneflow, torch as real
from oneflow import mock_torch
modules = set(sys.modules)
mock_torch.enable()
import torch, torch.nn as nn
from torch import autograd as a
from torch.autograd import functional as F
import torch.backends.cudnn as cudnn
assert F is oneflow.autograd.functional and torch is oneflow and nn is oneflow.nn and a is oneflow.autograd and cudnn is real.backends.cudnn, (torch, nn, a, cudnn)
assert torch.ones(2).sum().item() == 2 and real.ones(2).dtype is torch.float32
mock_torch.disable()
import torch
assert torch is real
with mock_torch.enable():
    import torch
    assert torch is oneflow
    with mock_torch.disable():
        import torch
        assert torch is real
    import torch
    assert torch is oneflow
import torch
assert torch is real

@mock_torch.enable()
def inside():
    import torch
    return torch

import torch
assert torch is real and inside() is oneflow
try:
    with mock_torch.enable():
        from torch import no_such_name
except ImportError as error:
    assert "oneflow" in str(error), error
else:
    raise AssertionError
import torch
assert torch is real and sys.modules["torch"] is real
print("done")
"""


def test_within_mock_torch_import_torch_gives_oneflow():
    run = subprocess.run([sys.executable, "-c", MOCKED], capture_output=True, text=True, timeout=120)
    assert (run.stdout, run.returncode) == ("done\n", 0), run.stderr
