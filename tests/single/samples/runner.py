"""Runs a sample below the job layer: traces its call, then interprets the logical graph on real tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sample import Sample

from oneflow.engine.core import dtype as dtypes
from oneflow.engine.core.placement import parse_placement
from oneflow.engine.core.spec import TensorSpec
from oneflow.engine.ir.blob import Blob
from oneflow.engine.ir.interpret import interpret
from oneflow.engine.ir.trace import Trace, tracing
from oneflow.engine.job.settings import Settings


def trace(sample: Sample) -> tuple[Trace, list[Blob]]:
    """The trace of ``sample.call`` on blobs of its inputs' specs, and the blobs it returned."""
    settings = Settings(is_train=sample.is_train)
    state = Trace("sample", settings, {}, parse_placement("cpu", "0:0"))
    with tracing(state):
        blobs = [
            Blob(state.add_input(f"x{i}", TensorSpec(a.shape, dtypes.from_numpy(a.dtype))))
            for i, a in enumerate(sample.inputs)
        ]
        out = sample.call(*blobs)
    return state, list(out) if isinstance(out, (tuple, list)) else [out]


def outputs(sample: Sample, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the traced call computes; every variable is drawn from its own initializer with seed 0."""
    state, blobs = trace(sample)
    values: dict[Any, torch.Tensor] = dict(zip(state.graph.inputs, tensors))
    for name, node in state.graph.variables.items():
        decl = state.graph.decls[name]
        values[node] = decl.initializer.draw(decl.spec, torch.Generator().manual_seed(0))
    if state.graph.step is not None:
        values[state.graph.step] = torch.zeros(1, dtype=torch.int64)
    for source, nodes in state.graph.sources:
        values.update(zip(nodes, source.next()))
    env = interpret(state.graph, values, "cpu")
    results = [env[b.node] for b in blobs]
    for blob, value in zip(blobs, results):
        assert tuple(value.shape) == blob.shape and value.dtype == blob.dtype, (blob, value.shape, value.dtype)
    return results


def gradients(results: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[np.ndarray]:
    """Gradients of the float inputs for fixed, uneven cotangents of the float results."""
    floats = [r for r in results if r.dtype.is_floating_point and r.requires_grad]
    if not floats:
        return [np.zeros(tuple(x.shape), np.float32) for x in inputs if x.requires_grad]
    total = sum((r * torch.linspace(0.5, 1.5, r.numel(), dtype=r.dtype).reshape(r.shape)).sum() for r in floats)
    leaves = [x for x in inputs if x.requires_grad]
    grads = torch.autograd.grad(total, leaves, allow_unused=True)
    return [np.zeros(tuple(x.shape), np.float32) if g is None else g.numpy() for x, g in zip(leaves, grads)]


def leaves(sample: Sample) -> list[torch.Tensor]:
    tensors = [torch.from_numpy(a.copy()) for a in sample.inputs]
    return [t.requires_grad_() if sample.gradient and t.dtype.is_floating_point else t for t in tensors]


def check(sample: Sample) -> None:
    """Values and gradients of the op against the reference."""
    mine, theirs = leaves(sample), leaves(sample)
    got = outputs(sample, mine)
    expected = sample.expect(*theirs)
    expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    assert len(got) == len(expected)
    for g, e in zip(got, expected):
        e = torch.as_tensor(e)
        assert g.dtype == e.dtype, (sample.row, g.dtype, e.dtype)
        np.testing.assert_allclose(g.detach().numpy(), e.detach().numpy(), sample.rtol, sample.atol, err_msg=sample.row)
    if sample.gradient:
        for g, e in zip(gradients(got, mine), gradients(expected, theirs)):
            np.testing.assert_allclose(g, e, sample.rtol, sample.atol, err_msg=f"gradient of {sample.row}")
