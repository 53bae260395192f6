"""Small jobs as users write them, their joint graphs and their programs, for the tests of the compiler's passes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from one_rank import program_for, session_variables
from torch import fx

import oneflow as flow
from oneflow.engine.capture.job_joint import JointOptions, build_joint
from oneflow.engine.capture.joint import Joint
from oneflow.engine.ir.graph import Graph
from oneflow.engine.program.program import Program

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
    hidden = flow.layers.dense(
        flow.reshape(x, (4, -1)), 16, activation=flow.nn.relu, kernel_initializer=NORMAL, name="fc1"
    )
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
    by_key = {("variable", name): tensors[node] for name, node in graph.variables.items()}
    by_key.update({("feed", number): tensors[node] for number, node in enumerate(graph.feeds())})
    keys = {node: key for key, node in joint.arguments.items()}
    return joint, [by_key[keys[node]] for node in joint.graph.nodes if node.op == "placeholder"]


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
