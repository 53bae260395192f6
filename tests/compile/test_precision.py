"""Which ops run in half precision, and what that changes."""

import numpy as np
import pytest
from compiled_jobs import NETS, batch, convolutions, sgd, traced, train_job

import oneflow as flow
from oneflow.engine.capture.precision import half_nodes
from oneflow.engine.ir.notes import op_note


def test_matrix_products_and_convolutions_are_half_and_losses_are_not():
    graph, _ = traced(train_job(convolutions, enable_auto_mixed_precision=True))
    half = half_nodes(graph)
    ops = [node for node in graph.body.nodes if node.op == "call_function"]
    by_precision = {kind: {n for n in ops if n.target.precision == kind} for kind in ("white", "gray", "clear", None)}
    assert len(by_precision["white"]) >= 3 and by_precision["white"] <= half
    assert not by_precision[None] & half
    assert not set(graph.losses) & half
    between = [n for n in ops if op_note(n).name == "bn"]
    assert len(between) == 1 and set(between) <= half, "batch normalization between two convolutions"


def test_a_gray_op_with_a_white_one_on_one_side_only_stays_float32():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((4, 4))):
        before = flow.math.add(x, x, name="before")
        inside = flow.math.add(flow.matmul(before, x), x, name="inside")
        after = flow.math.add(flow.matmul(inside, x), x, name="after")
        return flow.reshape(after, (16,))

    graph, _ = traced(job)
    half = {op_note(node).name for node in half_nodes(graph)}
    assert "inside" in half and not half & {"before", "after"}


@pytest.mark.parametrize("net", NETS)
def test_mixed_precision_trains_nearly_as_float32_does(net, capsys):
    def train(mixed: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        flow.clear_default_session()
        job = train_job(net, lambda: sgd(0.05), enable_auto_mixed_precision=mixed)
        losses = []
        for _ in range(8):
            loss = job(*batch()).get()
            assert loss.dtype == np.float32
            losses.append(loss.mean())
        return np.array(losses), {name: value.numpy() for name, value in flow.get_all_variables().items()}

    plain, variables = train(False)
    assert "mixed precision" not in capsys.readouterr().err
    mixed, others = train(True)
    assert "job 'job' uses mixed precision on the CPU, as bfloat16" in capsys.readouterr().err
    assert plain[-1] < plain[0] and mixed[-1] < mixed[0]
    assert not np.array_equal(plain, mixed), "nothing ran in half precision"
    np.testing.assert_allclose(mixed, plain, atol=0.05, rtol=0.05)
    for name, value in variables.items():
        assert others[name].dtype == value.dtype
        np.testing.assert_allclose(others[name], value, atol=0.1, err_msg=name)


def test_mixed_precision_of_a_predict_job_returns_float32():
    config = flow.function_config()
    config.enable_auto_mixed_precision(True)

    @flow.global_function(config)
    def job(x=flow.FixedTensorDef((8, 8))):
        y = flow.matmul(x, x)
        assert y.dtype == flow.float32
        return y, flow.nn.relu(y)

    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    y, relu = job(x).get()
    assert (y.dtype, relu.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(y, x @ x, atol=0.1)
    assert not np.allclose(y, x @ x, atol=1e-6), "computed in bfloat16"
    np.testing.assert_array_equal(relu, np.maximum(y, 0))
