"""Samples of the ops that compute nothing."""

from __future__ import annotations

import torch
from sample import Sample, rand

from oneflow import distribute, nn

SAMPLES = [
    Sample("item", lambda x: nn.moments(x, [0])[1], (rand(4, 3),), lambda x: x.var(0, correction=0)),
    Sample("layout", lambda x: x.with_distribute(distribute.split(0)) * 2, (rand(4, 3),), lambda x: x * 2),
    Sample(
        "layout",
        lambda x: x.with_gradient_distribute(distribute.broadcast()) + 1,
        (rand(2, 3),),
        lambda x: torch.add(x, 1),
    ),
]
