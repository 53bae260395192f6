"""The joint graph: forward and backward as one graph of aten ops, and what training it gives."""

import inspect

import numpy as np
import pytest
import torch
from compiled_jobs import (
    NETS,
    aten,
    batch,
    calls,
    convolutions,
    evaluate,
    joint_of,
    perceptron,
    program_of,
    sgd,
    traced,
    train_job,
)
from one_rank import program_for, session_variables, step_graph

import oneflow as flow
from oneflow.engine.capture.cleanup import clean
from oneflow.engine.ir.notes import op_note
from oneflow.engine.ir.text import graph_text
from oneflow.engine.program.notes import joint_note
from oneflow.engine.step.codegen import generate


@pytest.mark.parametrize("net", NETS)
def test_the_clean_up_keeps_every_value(net):
    joint, tensors = joint_of(train_job(net))
    before = evaluate(joint.graph, tensors)
    count = len(calls(joint.graph))
    clean(joint.graph)
    joint.graph.lint()
    assert len(calls(joint.graph)) < count
    after = evaluate(joint.graph, tensors)
    assert len(before) == len(after) > 1
    for one, other in zip(before, after):
        assert one.dtype == other.dtype
        torch.testing.assert_close(other, one, rtol=0, atol=0)


@pytest.mark.parametrize("net", NETS)
def test_nothing_of_autograd_s_bookkeeping_is_left(net):
    program = program_of(train_job(net))
    targets = [node.target for node in calls(step_graph(program))]
    assert aten.detach.default not in targets and aten.alias.default not in targets
    for node in calls(step_graph(program)):
        if node.target is aten.t.default:
            assert node.args[0].target is not aten.t.default
        mutable = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        assert node.users or mutable or not isinstance(node.target, torch._ops.OpOverload), f"{node} is not used"


@pytest.mark.parametrize("net", NETS)
def test_gradients_lie_in_memory_as_their_variables_do(net):
    joint, tensors = joint_of(train_job(net))
    clean(joint.graph)
    values = evaluate(joint.graph, tensors)
    gradients = dict(zip(joint.trained, values[sum(joint.counts) :]))
    store = session_variables().tensors
    assert set(gradients) == set(joint.trained) and len(gradients) >= 2
    for name, gradient in gradients.items():
        assert gradient.stride() == store[name].stride(), name


def test_filters_are_kept_channels_last():
    traced(train_job(convolutions))
    filters = session_variables().tensors["conv2-weight"]
    assert filters.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("net", NETS)
def test_every_node_knows_the_op_it_came_from(net):
    job = train_job(net)
    joint, _ = joint_of(job)
    origins = {origin.name for node in calls(joint.graph) if (origin := joint_note(node).origin) is not None}
    ops = {op_note(node).name for node in traced(job)[0].body.nodes if node.op == "call_function"}
    assert "loss" in origins and origins <= ops
    assert len(origins) > len(ops) / 2


def test_a_predict_job_computes_only_what_it_returns():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((3,))):
        flow.math.exp(x)
        return x * 2 + 1

    program = program_for(traced(job)[0], [torch.zeros(3)])
    assert [node.target for node in calls(step_graph(program))] == [aten.mul.Tensor, aten.add_.Tensor]


def test_compiling_twice_gives_the_same_program():
    job = train_job(convolutions)
    first, second = program_of(job), program_of(job)
    assert generate(step_graph(first), "job").source == generate(step_graph(second), "job").source


def test_tracing_twice_gives_the_same_text():
    texts = []
    for _ in range(2):
        flow.clear_default_session()
        graph, _ = traced(train_job(convolutions))
        texts.append(graph_text(graph))
    assert texts[0] == texts[1]
    assert "float32(4, 5) = nn.dense(" in texts[0]
    assert (
        f"# {inspect.getfile(convolutions)}:" in texts[0]
        and texts[0].startswith("train job job\n")
        and "\nloss %loss\n" in texts[0]
    )


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("net", [perceptron, convolutions])
def test_training_equals_plain_torch(net, momentum):
    job = train_job(net, lambda: sgd(0.1, momentum))
    values = {name: torch.from_numpy(v.numpy()) for name, v in flow.get_all_variables().items()}
    skipped = ("System", "bn-moving_mean", "bn-moving_variance")
    params = {
        n: v.requires_grad_() for n, v in values.items() if not n.startswith(skipped) and not n.endswith("-momentum")
    }
    velocity = {n: torch.zeros_like(v) for n, v in params.items()}
    mean, variance = values.get("bn-moving_mean"), values.get("bn-moving_variance")
    for step in range(3):
        x, y = batch(step)
        logits = reference(net, torch.from_numpy(x), params, mean, variance)
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y).long(), reduction="none")
        np.testing.assert_allclose(job(x, y).get(), loss.detach().numpy(), rtol=1e-4, atol=1e-5)
        grads = torch.autograd.grad(loss.mean(), list(params.values()))
        with torch.no_grad():
            for (name, p), g in zip(params.items(), grads):
                velocity[name] = momentum * velocity[name] - 0.1 * g
                p += velocity[name]
    for name, value in flow.get_all_variables().items():
        if name in values:
            got = params.get(name, values[name])
            if not name.startswith("System") and not name.endswith("-momentum"):
                np.testing.assert_allclose(value.numpy(), got.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def reference(net, x, p, mean, variance):
    """The same nets in torch."""
    f = torch.nn.functional
    if net is perceptron:
        return affine(torch.relu(affine(x.flatten(1), p, "fc1")), p, "fc2")
    x = f.conv2d(x, p["conv1-weight"], p["conv1-bias"], padding=1)
    x = torch.relu(
        f.batch_norm(x, mean, variance, p["bn-gamma"], p["bn-beta"], training=True, momentum=0.01, eps=0.001)
    )
    x = f.max_pool2d(torch.relu(f.conv2d(x, p["conv2-weight"], p["conv2-bias"], padding=1)), 2)
    return affine(x.flatten(1), p, "fc")


def affine(x, p, name):
    """Dense weights are (units, inputs)."""
    return x @ p[f"{name}-weight"].T + p[f"{name}-bias"]
