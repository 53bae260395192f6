"""Variables are updated in the midst of the backward pass, and nothing else changes."""

import numpy as np
import pytest
from compiled_jobs import (
    NETS,
    NORMAL,
    aten,
    batch,
    calls,
    convolutions,
    images,
    labels,
    perceptron,
    program_of,
    sgd,
    shared,
    train_job,
)
from one_rank import step_graph

import oneflow as flow
from oneflow.engine.ops.updates import gradients
from oneflow.engine.passes import early
from oneflow.engine.program import large_products
from oneflow.engine.program.aliases import memories
from oneflow.engine.program.notes import update_note, val


def adam():
    return flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.01]))


def clipped():
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    return flow.optimizer.SGD(rate, momentum=0.9, grad_clipping=flow.optimizer.grad_clipping.by_global_norm(0.5))


def steps_of(net, make) -> list[np.ndarray]:
    """The losses of some steps, and the variables after them."""
    flow.clear_default_session()
    job = train_job(net, make)
    losses = [job(*batch(seed)).get().numpy() for seed in range(4)]
    return losses + [value.numpy() for value in flow.get_all_variables().values()]


@pytest.mark.parametrize("make", [sgd, adam, clipped])
@pytest.mark.parametrize("net", NETS)
def test_when_variables_are_updated_changes_no_bit(net, make, monkeypatch):
    monkeypatch.setattr(early, "BYTES", 1)
    soon = steps_of(net, make)
    monkeypatch.setattr(early, "BYTES", 2**40)
    for one, other in zip(soon, steps_of(net, make), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("net", NETS)
def test_every_variable_is_updated_once_and_read_no_more_then(net, monkeypatch):
    monkeypatch.setattr(early, "BYTES", 1)
    job = train_job(net)
    program = program_of(job)
    placeholders = [node for node in step_graph(program).nodes if node.op == "placeholder"]
    stored = {key[1]: node for key, node in zip(program.sections["step"].inputs, placeholders) if key[0] == "variable"}
    memory = memories(step_graph(program))
    trained = [decl.name for decl in job.job.graph.trained_variables()]
    updates = [node for node in calls(step_graph(program)) if update_note(node)]
    assert sorted(name for node in updates for name in update_note(node).names) == sorted(trained)
    for node in updates:
        mine = {(stored[name],) for name in update_note(node).names}
        after = [later for later in calls(step_graph(program)) if node < later and not update_note(later)]
        assert not mine & {memory[used] for later in after for used in later.all_input_nodes}


def test_a_variable_is_updated_before_the_gradients_of_layers_further_down_are_made(monkeypatch):
    monkeypatch.setattr(early, "BYTES", 1)
    order = [
        note.names if (note := update_note(node)) else node.target
        for node in calls(step_graph(program_of(train_job(convolutions))))
    ]
    last_convolution = max(i for i, what in enumerate(order) if what is aten.convolution_backward.default)
    assert order.index(("fc-weight",)) < last_convolution


def test_a_variable_that_the_job_returns_is_returned_as_it_was():
    @flow.global_function(type="train")
    def job(x=images(), y=labels()):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, shared(x))
        sgd().minimize(loss)
        return flow.get_variable("w", (192, 5), initializer=NORMAL) * 1.0

    before = flow.get_all_variables()["w"].numpy().copy()
    np.testing.assert_array_equal(job(*batch()).get().numpy(), before)
    assert (flow.get_all_variables()["w"].numpy() != before).any()


@pytest.mark.parametrize("make", [sgd, adam])
def test_a_large_product_is_used_row_by_row_and_never_made(make, monkeypatch):
    whole = steps_of(perceptron, make)
    monkeypatch.setattr(large_products, "ROWS_BYTES", 4 * 192 * 5)  # 5 rows of the 16 of the first layer
    for one, other in zip(steps_of(perceptron, make), whole, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)
    graph = step_graph(program_of(train_job(perceptron, make)))
    (by_rows,) = [node for node in calls(graph) if node.target is gradients.by_rows]
    assert update_note(by_rows).names == ("fc1-weight",) and by_rows.kwargs["size"] == 4 * 192 * 5
    assert not [node for node in calls(graph) if node.target is aten.mm.default and val(node).shape == (16, 192)]


def test_a_product_of_variables_is_made_before_they_are_updated(monkeypatch):
    def trained():
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(x=flow.FixedTensorDef((2, 2))):
            a, b = (
                flow.get_variable(name, shape, initializer=NORMAL) for name, shape in (("a", (2, 64)), ("b", (64, 32)))
            )
            loss = flow.matmul(x, flow.matmul(a, b))
            sgd().minimize(loss)
            return loss

        job(np.ones((2, 2), np.float32)).get()
        return [flow.get_all_variables()[name].numpy().copy() for name in ("a", "b")]

    whole = trained()
    monkeypatch.setattr(large_products, "ROWS_BYTES", 64)
    for one, other in zip(trained(), whole, strict=True):
        np.testing.assert_allclose(one, other, 1e-6, 1e-7)


def test_a_product_that_something_else_reads_too_is_made(monkeypatch):
    monkeypatch.setattr(large_products, "ROWS_BYTES", 64)
    seen = []

    @flow.global_function(type="train")
    def job(x=images(), y=labels()):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, perceptron(x))
        flow.watch_diff(flow.get_variable("fc1-weight", (16, 192)), seen.append)
        sgd().minimize(loss)
        return loss

    graph = step_graph(program_of(job))
    assert ("fc1-weight",) not in [update_note(node).names for node in calls(graph) if node.target is gradients.by_rows]
