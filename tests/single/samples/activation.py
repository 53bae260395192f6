"""Samples of ``ops.activation``."""

from __future__ import annotations

import torch
from sample import Sample, rand

from oneflow import layers, nn
from oneflow.initializer import constant_initializer

X = rand(3, 4, low=-8, high=8)
IMAGE = rand(2, 3, 4, 4)

SAMPLES = [
    Sample("nn.relu6", lambda x: nn.relu6(x), (X,), lambda x: x.clamp(0, 6)),
    Sample("nn.leaky_relu", lambda x: nn.leaky_relu(x), (X,), lambda x: torch.where(x > 0, x, 0.2 * x)),
    Sample("nn.leaky_relu", lambda x: nn.leaky_relu(x, 0.1), (X,), lambda x: torch.where(x > 0, x, 0.1 * x)),
    Sample("nn.elu", lambda x: nn.elu(x), (X,), lambda x: torch.where(x > 0, x, x.exp() - 1)),
    Sample("nn.elu", lambda x: nn.elu(x, alpha=0.5), (X,), lambda x: torch.where(x > 0, x, 0.5 * (x.exp() - 1))),
    Sample("nn.hardswish", lambda x: nn.hardswish(x), (X,), lambda x: x * (x + 3).clamp(0, 6) / 6),
    Sample("nn.hardsigmoid", lambda x: nn.hardsigmoid(x), (X,), lambda x: (x + 3).clamp(0, 6) / 6),
    Sample("nn.hardtanh", lambda x: nn.hardtanh(x), (X,), lambda x: x.clamp(-1, 1)),
    Sample("nn.hardtanh", lambda x: nn.hardtanh(x, -2, 3.0), (X,), lambda x: x.clamp(-2, 3)),
    Sample("nn.mish", lambda x: nn.mish(x), (X,), lambda x: x * torch.tanh(torch.log1p(x.exp())), rtol=1e-4),
    Sample("nn.swish", lambda x: nn.swish(x), (X,), lambda x: x / (1 + (-x).exp())),
    Sample("nn.swish", lambda x: nn.swish(x, 2.0), (X,), lambda x: x / (1 + (-2 * x).exp())),
    Sample("nn.softmax", lambda x: nn.softmax(x), (X,), lambda x: x.exp() / x.exp().sum(-1, keepdim=True)),
    Sample("nn.softmax", lambda x: nn.softmax(x, axis=0), (X,), lambda x: x.exp() / x.exp().sum(0)),
    Sample("nn.logsoftmax", lambda x: nn.logsoftmax(x), (X,), lambda x: x - x.exp().sum(-1, keepdim=True).log()),
    Sample(
        "nn.prelu",
        lambda x: layers.prelu(x, constant_initializer(0.3), shared_axes=[2, 3]),
        (IMAGE,),
        lambda x: torch.where(x > 0, x, 0.3 * x),
    ),
    Sample("nn.prelu", lambda x: layers.prelu(x), (IMAGE,), lambda x: x.clamp(min=0)),
]
