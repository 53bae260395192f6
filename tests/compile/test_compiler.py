"""The way from a traced job to a program: the joint graph, its clean-up, the update, the generated code, mixed precision."""

import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from one_rank import program_for, session_variables, step_graph
from torch import fx

import oneflow as flow
from oneflow.compiler import early
from oneflow.compiler.cleanup import cancel_transposes, clean, drop_unused, fold_kept_sums, share_equal_nodes
from oneflow.compiler.codegen import generate
from oneflow.compiler.inplace import memories
from oneflow.compiler.joint import Joint, JointOptions, build_joint
from oneflow.compiler.notes import joint_note, update_note, val
from oneflow.compiler.precision import half_nodes
from oneflow.compiler.program import Program
from oneflow.ir.graph import Graph
from oneflow.ir.notes import op_note
from oneflow.ir.text import graph_text
from oneflow.ops import update

aten = torch.ops.aten
CPU = torch.device("cpu")


def sgd(lr: float = 0.1, momentum: float = 0.9):
    return flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [lr]), momentum=momentum)


def images() -> flow.FixedTensorDef:
    return flow.FixedTensorDef((4, 3, 8, 8))


def labels() -> flow.FixedTensorDef:
    return flow.FixedTensorDef((4,), dtype=flow.int32)


NORMAL = flow.random_normal_initializer(stddev=0.2)


def perceptron(x):
    hidden = flow.layers.dense(flow.reshape(x, (4, -1)), 16, activation=flow.nn.relu, kernel_initializer=NORMAL, name="fc1")
    return flow.layers.dense(hidden, 5, kernel_initializer=NORMAL, name="fc2")


def convolutions(x):
    x = flow.layers.conv2d(x, 6, 3, padding="SAME", kernel_initializer=NORMAL, name="conv1")
    x = flow.nn.relu(flow.layers.batch_normalization(x, axis=1, name="bn"))
    x = flow.layers.conv2d(x, 8, 3, padding="SAME", activation=flow.nn.relu, kernel_initializer=NORMAL, name="conv2")
    x = flow.nn.max_pool2d(x, 2, 2, "SAME")
    return flow.layers.dense(flow.reshape(x, (4, -1)), 5, kernel_initializer=NORMAL, name="fc")


def shared(x):
    """One variable in several places, sums that broadcast, a result that is read again."""
    w = flow.get_variable("w", (192, 5), initializer=NORMAL)
    flat = flow.reshape(x, (4, 192))
    y = flow.matmul(flat, w) + flow.matmul(flow.math.tanh(flat), w)
    return y + flow.math.reduce_mean(y, axis=[0], keepdims=True) + flow.get_variable("b", (5,), initializer=NORMAL)


NETS = [perceptron, convolutions, shared]


def train_job(net: Callable[..., Any], make=sgd, **settings: bool):
    """A train job of a net, as users write it; ``settings`` are members of its config."""
    config = flow.function_config()
    for name, value in settings.items():
        getattr(config, name)(value)

    @flow.global_function(type="train", function_config=config)
    def job(x=images(), y=labels()):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, net(x), name="loss")
        make().minimize(loss)
        return loss

    return job


def traced(job: Callable[..., Any]) -> tuple[Graph, dict[str, torch.Tensor]]:
    """A job's logical graph and the session's variables."""
    flow.get_all_variables()
    return job.job.graph, session_variables().tensors


def batch(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(4, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, 4, np.int32)]


def joint_of(job) -> tuple[Joint, list[torch.Tensor]]:
    """The joint graph of a train job before any clean-up, and tensors for its placeholders."""
    graph, store = traced(job)
    tensors = {node: store[name].clone(memory_format=torch.preserve_format) for name, node in graph.variables.items()}
    tensors.update(zip(graph.feeds(), map(torch.from_numpy, batch())))
    trained = tuple(decl.name for decl in graph.trained_variables())
    joint = build_joint(JointOptions(graph, tensors, CPU, lambda node, inputs: inputs, trained))
    return joint, [tensors[node] for node in joint.inputs]


def evaluate(graph: fx.Graph, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """What a joint graph computes; its inputs are kept from in-place updates."""
    copies = [t.clone(memory_format=torch.preserve_format) for t in tensors]
    with torch.no_grad():
        out = fx.GraphModule({}, graph)(*copies)
    return [out] if isinstance(out, torch.Tensor) else list(out)


def program_of(job) -> Program:
    return program_for(traced(job)[0], list(map(torch.from_numpy, batch())))


def calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_function"]


# ----------------------------------------------------------------------------------------------------- joint graph


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
    origins = {op_note(origin).name for node in calls(joint.graph) if (origin := joint_note(node).origin) is not None}
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
    assert f"# {__file__}:" in texts[0] and texts[0].startswith("train job job\n") and "\nloss %loss\n" in texts[0]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("net", [perceptron, convolutions])
def test_training_equals_plain_torch(net, momentum):
    job = train_job(net, lambda: sgd(0.1, momentum))
    values = {name: torch.from_numpy(v.numpy()) for name, v in flow.get_all_variables().items()}
    skipped = ("System", "bn-moving_mean", "bn-moving_variance")
    params = {n: v.requires_grad_() for n, v in values.items() if not n.startswith(skipped) and not n.endswith("-momentum")}
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
    x = torch.relu(f.batch_norm(x, mean, variance, p["bn-gamma"], p["bn-beta"], training=True, momentum=0.01, eps=0.001))
    x = f.max_pool2d(torch.relu(f.conv2d(x, p["conv2-weight"], p["conv2-bias"], padding=1)), 2)
    return affine(x.flatten(1), p, "fc")


def affine(x, p, name):
    """Dense weights are (units, inputs)."""
    return x @ p[f"{name}-weight"].T + p[f"{name}-bias"]


# --------------------------------------------------------------------------------------------- clean-up passes alone


def graph_of(function: Callable[..., Any], *tensors: torch.Tensor) -> fx.Graph:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*tensors).graph


def test_double_transposes_cancel():
    graph = graph_of(lambda x: torch.t(torch.t(x)) + torch.t(x).sum(), torch.ones(2, 3))
    cancel_transposes(graph)
    drop_unused(graph)
    assert [n.target for n in calls(graph)].count(aten.t.default) == 1


def test_permutes_that_undo_each_other_cancel():
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    back = graph_of(lambda x: x.permute(0, 2, 3, 1).permute(0, 3, -3, 2).exp(), x)
    on = graph_of(lambda x: x.permute(0, 2, 3, 1).permute(0, 2, 3, 1).exp(), x)
    for graph, left in ((back, 0), (on, 2)):
        expected = evaluate(graph, [x])
        cancel_transposes(graph)
        drop_unused(graph)
        assert [n.target for n in calls(graph)].count(aten.permute.default) == left
        torch.testing.assert_close(evaluate(graph, [x]), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "function, left",
    [
        (lambda x: x[0, 0].t().transpose(-1, -2).exp(), 0),
        (lambda x: x.transpose(1, 3).transpose(-1, -3).exp(), 0),
        (lambda x: x.transpose(2, 3).permute(0, 1, 3, 2).exp(), 0),
        (lambda x: x.transpose(1, 3).transpose(1, 2).exp(), 2),
    ],
)
def test_moves_of_dims_that_undo_each_other_cancel_however_they_are_written(function, left):
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    graph = graph_of(function, x)
    expected = evaluate(graph, [x])
    cancel_transposes(graph)
    drop_unused(graph)
    assert sum(n.target in (aten.t.default, aten.transpose.int, aten.permute.default) for n in calls(graph)) == left
    torch.testing.assert_close(evaluate(graph, [x]), expected, rtol=0, atol=0)


def test_sums_that_keep_dims_only_for_a_view():
    x = torch.arange(24.0).reshape(2, 3, 4)
    graph = graph_of(lambda x: x.sum((0, 2), keepdim=True).view(3), x)
    expected = evaluate(graph, [x])
    fold_kept_sums(graph)
    assert [n.target for n in calls(graph)] == [aten.sum.dim_IntList]
    torch.testing.assert_close(evaluate(graph, [x]), expected)


def test_sums_whose_view_does_more_than_dropping_dims_stay():
    x = torch.arange(24.0).reshape(2, 3, 4)
    graph = graph_of(lambda x: x.sum((0,), keepdim=True).view(12), x)
    fold_kept_sums(graph)
    assert [n.target for n in calls(graph)] == [aten.sum.dim_IntList, aten.view.default]


def test_equal_nodes_become_one_and_random_ones_do_not():
    graph = graph_of(lambda x: (x * 2) + (x * 2) + (x * 2.0) + torch.rand_like(x) + torch.rand_like(x), torch.ones(2))
    share_equal_nodes(graph)
    targets = [n.target for n in calls(graph)]
    assert targets.count(aten.rand_like.default) == 2
    assert targets.count(aten.mul.Tensor) == 2, "2 and 2.0 are different arguments"


def test_reads_before_and_after_a_write_stay_apart():
    graph = fx.Graph()
    x = graph.placeholder("x")
    before = graph.call_function(aten.mul.Tensor, (x, 2))
    graph.call_function(aten.add_.Tensor, (x, 1))
    after = graph.call_function(aten.mul.Tensor, (x, 2))
    graph.output((before, after))
    for node in (x, before, after):
        node.meta["val"] = torch.ones(2)
    clean(graph)
    assert [value.tolist() for value in evaluate(graph, [torch.ones(2)])] == [[2, 2], [4, 4]]


def test_assign_writes_at_the_end_of_the_step():
    @flow.global_function()
    def job(x=flow.FixedTensorDef((2,))):
        w = flow.get_variable("w", (2,), initializer=flow.ones_initializer(), trainable=False)
        before = w * 10
        flow.assign(w, x)
        return before, w * 10

    before, after = job(np.array([3, 4], np.float32)).get()
    assert (before.tolist(), after.tolist()) == ([10, 10], [10, 10])
    assert flow.get_all_variables()["w"].numpy().tolist() == [3, 4]
    assert job(np.array([5, 6], np.float32)).get()[0].tolist() == [30, 40]


# ------------------------------------------------------------------------------------------------------- rewriting


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pooling_before_relu_gives_the_same_values_and_gradients(padding):
    def train(keep_order: bool):
        flow.clear_default_session()
        found = {}

        @flow.global_function(type="train")
        def job(x=flow.FixedTensorDef((2, 3, 7, 7))):
            x = x * flow.get_variable("w", (1, 3, 1, 1), initializer=flow.ones_initializer())
            relu = flow.nn.relu(x)
            out = flow.nn.max_pool2d(relu, 3, 2, padding)
            if keep_order:
                flow.watch(relu, lambda value: None)
            flow.watch_diff(x, lambda diff: found.update(diff=diff.numpy().copy()))
            sgd().minimize(out * out)
            return out

        rng = np.random.default_rng(3)
        found["out"] = job(rng.normal(size=(2, 3, 7, 7)).astype(np.float32) - 1.5).get().numpy()
        found["w"] = flow.get_all_variables()["w"].numpy()
        return found

    moved, kept = train(False), train(True)
    assert (kept["out"] == 0).any() and (kept["out"] > 0).any()
    for name in kept:
        np.testing.assert_allclose(moved[name], kept[name], rtol=1e-6, atol=1e-7, err_msg=name)


# --------------------------------------------------------------------------------------------------- generated code


class Value:
    """Something whose life can be watched."""


def test_values_are_dropped_after_their_last_use():
    alive: list[weakref.ref[Value]] = []
    counts = []

    def make(*inputs: Any) -> Value:
        counts.append(sum(ref() is not None for ref in alive))
        value = Value()
        alive.append(weakref.ref(value))
        return value

    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(5):
        node = graph.call_function(make, (node,))
    graph.output((node,))
    code = generate(graph, "chain")
    assert isinstance(code.call(Value())[0], Value)
    gc.collect()
    assert counts == [0, 1, 1, 1, 1], "at each call only its own input is alive"


def test_values_that_are_read_again_live_until_then():
    def tag(name, *inputs):
        return [name, *inputs]

    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(tag, ("a", x))
    b = graph.call_function(tag, ("b", a))
    graph.call_function(tag, ("unused", a))
    c = graph.call_function(tag, ("c", a, [b], (a,)), {})
    graph.output((c, b))
    got = generate(graph, "job").call("x")
    assert got == (["c", ["a", "x"], [["b", ["a", "x"]]], (["a", "x"],)], ["b", ["a", "x"]])


def test_constants_of_every_kind():
    def same(*args, **kwargs):
        return args, kwargs

    values = (None, True, 1, -2.5, "text", float("inf"), float("-inf"), torch.float32, (1,), [2, (3,)], ())
    graph = fx.Graph()
    graph.output(graph.call_function(same, values, {"key": torch.strided}))
    code = generate(graph, "job")
    args, kwargs = code.call()
    assert args == values and kwargs == {"key": torch.strided}
    assert [type(a) for a in args] == [type(v) for v in values]


def test_a_line_of_code_leads_to_its_node():
    program = program_of(train_job(perceptron))
    code = generate(step_graph(program), "job")
    lines = code.source.splitlines()
    assert set(code.node_at.values()) == set(calls(step_graph(program)))
    for number, node in code.node_at.items():
        assert "(" in lines[number - 1] or "[" in lines[number - 1], (lines[number - 1], node)


# ---------------------------------------------------------------------------------------------- errors while it runs


def line_of(function: Callable[..., Any], mark: str) -> str:
    source, start = inspect.getsourcelines(function)
    return f"{__file__}:{start + next(i for i, text in enumerate(source) if mark in text)}"


@pytest.mark.parametrize("train", [False, True])
def test_a_failing_step_names_the_op_and_the_line(train):
    @flow.global_function(type="train" if train else "predict")
    def job(x=images(), y=labels()):
        logits = perceptron(x)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits, name="my_loss")  # the loss
        if train:
            sgd().minimize(loss)
        return loss * 2

    x, y = batch()
    job(x, y)
    y[2] = 5
    with pytest.raises(RuntimeError) as caught:
        job(x, y)
    assert "job 'job' failed at step 1 in op 'my_loss' (nn.sparse_softmax_cross_entropy_with_logits) from " in str(caught.value)
    assert line_of(test_a_failing_step_names_the_op_and_the_line, "# the loss") in str(caught.value)
    y[2] = 4
    job(x, y)


def test_an_index_out_of_range_names_the_gather():
    @flow.global_function()
    def job(i=flow.FixedTensorDef((2,), dtype=flow.int64)):
        table = flow.get_variable("table", (3, 2), initializer=flow.ones_initializer())
        return flow.gather(table * 2, i, name="lookup") + 1  # the lookup

    assert job(np.array([0, 2])).get().shape == (2, 2)
    with pytest.raises(RuntimeError, match="in op 'lookup'") as caught:
        job(np.array([0, 3]))
    assert line_of(test_an_index_out_of_range_names_the_gather, "# the lookup") in str(caught.value)


# -------------------------------------------------------------------------------------------------- mixed precision


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


# ----------------------------------------------------------------------------------------------------- early updates


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
    updates = [node for node in calls(step_graph(program)) if early.is_update(node)]
    assert sorted(name for node in updates for name in update_note(node).names) == sorted(trained)
    for node in updates:
        mine = {(stored[name],) for name in update_note(node).names}
        after = [later for later in calls(step_graph(program)) if node < later and not early.is_update(later)]
        assert not mine & {memory[used] for later in after for used in later.all_input_nodes}


def test_a_variable_is_updated_before_the_gradients_of_layers_further_down_are_made(monkeypatch):
    monkeypatch.setattr(early, "BYTES", 1)
    order = [note.names if (note := update_note(node)) else node.target for node in calls(step_graph(program_of(train_job(convolutions))))]
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
    monkeypatch.setattr(early, "ROWS_BYTES", 4 * 192 * 5)  # 5 rows of the 16 of the first layer
    for one, other in zip(steps_of(perceptron, make), whole, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)
    graph = step_graph(program_of(train_job(perceptron, make)))
    (by_rows,) = [node for node in calls(graph) if node.target is update.by_rows]
    assert update_note(by_rows).names == ("fc1-weight",) and by_rows.kwargs["size"] == 4 * 192 * 5
    assert not [node for node in calls(graph) if node.target is aten.mm.default and val(node).shape == (16, 192)]


def test_a_product_of_variables_is_made_before_they_are_updated(monkeypatch):
    def trained():
        flow.clear_default_session()

        @flow.global_function(type="train")
        def job(x=flow.FixedTensorDef((2, 2))):
            a, b = (flow.get_variable(name, shape, initializer=NORMAL) for name, shape in (("a", (2, 64)), ("b", (64, 32))))
            loss = flow.matmul(x, flow.matmul(a, b))
            sgd().minimize(loss)
            return loss

        job(np.ones((2, 2), np.float32)).get()
        return [flow.get_all_variables()[name].numpy().copy() for name in ("a", "b")]

    whole = trained()
    monkeypatch.setattr(early, "ROWS_BYTES", 64)
    for one, other in zip(trained(), whole, strict=True):
        np.testing.assert_allclose(one, other, 1e-6, 1e-7)


def test_a_product_that_something_else_reads_too_is_made(monkeypatch):
    monkeypatch.setattr(early, "ROWS_BYTES", 64)
    seen = []

    @flow.global_function(type="train")
    def job(x=images(), y=labels()):
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, perceptron(x))
        flow.watch_diff(flow.get_variable("fc1-weight", (16, 192)), seen.append)
        sgd().minimize(loss)
        return loss

    graph = step_graph(program_of(job))
    assert ("fc1-weight",) not in [update_note(node).names for node in calls(graph) if node.target is update.by_rows]
