"""Every aten op that is exported: what ONNX Runtime computes against torch, for a fixed batch and for any."""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from aten_samples import FILES, SAMPLES
from aten_samples.sample import AtenSample, Call
from torch import fx

from oneflow.engine.capture.forward_graph import Captured
from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.core.tree import tree_leaves, tree_map
from oneflow.engine.onnx.aten.builder import BatchSource
from oneflow.engine.onnx.aten.table import FAMILIES, REASONS, ROWS
from oneflow.engine.onnx.exporter import DEFAULT_OPSET, LARGEST_OPSET, LEAST_OPSET
from oneflow.engine.onnx.model import inline, make_model
from oneflow.engine.onnx.modules import AnyBatch, parts_of

ROOT = Path(__file__).resolve().parents[2]
BATCH = 2


def made(sample: AtenSample, n: int) -> Call:
    with torch.random.fork_rng():
        torch.manual_seed(n)
        return sample.make(n)


def tensors_of(call: Call) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves([list(call.args), call.kwargs]) if isinstance(leaf, torch.Tensor)]


def results_of(sample: AtenSample, call: Call) -> list[torch.Tensor]:
    found = sample.compute(call)
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    return [results[i] for i in (range(len(results)) if sample.results is None else sample.results)]


def graph_of(sample: AtenSample, n: int) -> Captured:
    """One node, with an input for each tensor and for the batch, which an op may not take, one more."""
    call = made(sample, n)
    graph = fx.Graph()
    tensors = [torch.zeros(n), *tensors_of(call)]
    nodes = [graph.placeholder(f"input_{i}") for i in range(len(tensors))]
    for node, tensor in zip(nodes, tensors):
        node.meta["val"] = tensor
    following = iter(nodes[1:])
    args, kwargs = tree_map(
        lambda leaf: next(following) if isinstance(leaf, torch.Tensor) else leaf, [list(call.args), call.kwargs]
    )
    packet, overload = sample.name.split(".")
    node = graph.call_function(getattr(getattr(torch.ops.aten, packet), overload), tuple(args), kwargs)
    node.meta["val"] = sample.compute(call)
    outputs = [node]
    if isinstance(node.meta["val"], (tuple, list)):
        wanted = range(len(node.meta["val"])) if sample.results is None else sample.results
        outputs = [graph.call_function(operator.getitem, (node, i)) for i in wanted]
        for output, i in zip(outputs, wanted):
            output.meta["val"] = node.meta["val"][i]
    graph.output(outputs)
    return Captured(graph, tuple(n.name for n in nodes), {}, tuple(f"output_{i}" for i in range(len(outputs))))


def session_of(sample: AtenSample, any_batch: AnyBatch | None = None) -> onnxruntime.InferenceSession:
    """The model of a sample, which ONNX's checker has seen. In memory: there are many."""
    opset = sample.opset or DEFAULT_OPSET
    parts = parts_of(graph_of(sample, BATCH), opset, any_batch)
    model = make_model(onnx, parts, {}, inline, "sample", "", opset)
    onnx.checker.check_model(model, full_check=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def compare(session: onnxruntime.InferenceSession, sample: AtenSample, n: int) -> None:
    call = made(sample, n)
    feeds = {f"input_{i}": tensor.numpy() for i, tensor in enumerate([torch.zeros(n), *tensors_of(call)])}
    for got, want in zip(session.run(None, feeds), results_of(sample, call), strict=True):
        assert (got.shape, got.dtype) == (tuple(want.shape), want.numpy().dtype)
        np.testing.assert_allclose(got, want.numpy(), sample.tolerance, sample.tolerance)


IDS = [f"{sample.name}-{i}" for i, sample in enumerate(SAMPLES)]


@pytest.mark.parametrize("sample", SAMPLES, ids=IDS)
def test_onnx_runtime_computes_what_torch_does(sample):
    compare(session_of(sample), sample, BATCH)


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if not s.fixed], ids=[i for s, i in zip(SAMPLES, IDS) if not s.fixed]
)
def test_one_model_computes_what_torch_does_for_any_batch(sample):
    session = session_of(sample, AnyBatch(graph_of(sample, 2 * BATCH), BATCH, BatchSource("input_0")))
    for n in (1, 3):
        compare(session, sample, n)


TOO_OLD = (UnsupportedError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [LEAST_OPSET, 13, LARGEST_OPSET])
@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.opset is None], ids=[i for s, i in zip(SAMPLES, IDS) if s.opset is None]
)
def test_other_operator_sets_give_the_same_or_are_refused(sample, opset):
    of_opset = replace(sample, opset=opset)
    try:
        session = session_of(of_opset)
    except TOO_OLD:
        assert opset < DEFAULT_OPSET
    else:
        compare(session, of_opset, BATCH)


def test_every_emitter_has_a_sample():
    missing = sorted(set(ROWS) - {sample.name for sample in SAMPLES})
    assert not missing, f"add samples to tests/single/aten_samples for {missing}"


def test_every_sample_stands_in_the_file_of_its_family():
    assert FILES == sorted(f"of_{family}" for family in FAMILIES)
    unknown = sorted({sample.name for sample in SAMPLES} - set(ROWS))
    assert not unknown, f"there are no emitters of {unknown}"


def test_every_overload_of_the_table_is_one_of_torch():
    def is_known(name: str) -> bool:
        *namespace, packet, overload = name.split(".")
        ops = getattr(torch.ops, namespace[0] if namespace else "aten")
        return hasattr(ops, packet) and overload in getattr(ops, packet).overloads()

    assert not [name for name in [*ROWS, *REASONS] if not is_known(name)]
    assert not [name for name, count in Counter([*ROWS, *REASONS]).items() if count > 1]


def listed(rows: Any) -> str:
    return ", ".join(f"`{name}`" for name in sorted({row.split(".")[0] for row in rows}))


def test_the_document_lists_what_is_exported():
    text = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")
    for family, emitters in FAMILIES.items():
        assert f"| {family} | {listed(emitters.rows)} |" in text, (
            f"docs/onnx.md lacks: | {family} | {listed(emitters.rows)} |"
        )
