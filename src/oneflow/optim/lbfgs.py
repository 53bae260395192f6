"""``flow.optim.LBFGS``."""

from __future__ import annotations

import torch

from oneflow.optim.optimizer import Optimizer


class LBFGS(torch.optim.LBFGS, Optimizer):  # type: ignore[misc]  # its closure is not optional
    """torch's, with ``zero_grad`` and ``clip_grad`` as all optimizers here have them.

    It calls its closure several times in a step, so it has no place in a graph.
    """
