"""Programs of one device rely on no strides but those of variables and feeds.

A joint graph is traced on tensors without data, and torch's rules for those do not give every value the strides that
the kernel gives it. Most kernels take tensors of any strides. Those that do not would fail, or would compute something
else without a word.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from oneflow.engine.capture.cleanup import writes
from oneflow.engine.ir.nodes import argument
from oneflow.engine.program.aliases import memories
from oneflow.engine.sharding.rules.rule import ANY_STRIDES

aten = torch.ops.aten

OTHER_STRIDES: dict[Any, str] = {
    aten.native_batch_norm.default: "traced in the order of its input; the kernel knows contiguous and channels-last memory alone",
    aten.native_batch_norm_backward.default: "traced in the order of the gradient; the kernel follows the input, contiguous or channels-last",
    aten.native_layer_norm_backward.default: "traced in the order of the gradient; the kernel copies what is not contiguous",
    aten._log_softmax_backward_data.default: "traced in the order of the gradient; the kernel copies what is not contiguous",
    aten.log_sigmoid_forward.default: "traced in the order of its input; the kernel copies what is not contiguous",
    aten.binary_cross_entropy_backward.default: "traced as contiguous; the kernel follows the input",
    aten.smooth_l1_loss_backward.default: "traced in the order of the input; the kernel writes into contiguous memory",
    aten.reflection_pad2d_backward.default: "traced as contiguous; the kernel follows the input",
    aten.index.Tensor: "traced as contiguous; the kernel follows the input in the dims that are not indexed",
    aten.pow.Scalar: "traced in the order of the exponent; the kernel writes into contiguous memory",
    aten.xlogy.Tensor: "traced in the order of the second argument; the kernel follows the first",
    aten.elu_backward.default: "traced in the order of the input; the kernel follows the gradient",
    aten.hardsigmoid_backward.default: "traced in the order of the input; the kernel follows the gradient",
    aten.hardswish_backward.default: "traced in the order of the input; the kernel follows the gradient",
    aten.hardtanh_backward.default: "traced in the order of the input; the kernel follows the gradient",
    aten.softplus_backward.default: "traced in the order of the input; the kernel follows the gradient",
}
"""The ops whose results lie otherwise on a CPU than they were traced, found by running a sample of every op row in many
memory orders.

What follows does not ask this table but takes every value for one of them: to do so costs nothing, and other devices
have other kernels.
"""


def free_strides(graph: fx.Graph) -> None:
    """Replaces views that require some strides by reshapes, which take any.

    Relies on a clean joint graph of one device, which may write into values. Other ops that read strides are safe as
    they run: see ``ops/dense_operands.py``.
    """
    where = memories(graph)
    written = {where[argument(node, 0)] for node in graph.nodes if node.op == "call_function" and writes(node)}
    for node in list(graph.nodes):
        if (
            node.target in ANY_STRIDES and where[node] not in written
        ):  # a copy would keep what is written to it for itself
            node.target = ANY_STRIDES[node.target]
