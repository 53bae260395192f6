"""``flow.autograd``: gradients, as in torch."""

from torch import is_grad_enabled
from torch.autograd import Function, backward, enable_grad, grad, inference_mode, no_grad

from oneflow.autograd import functional, graph
from oneflow.engine.eager.settings import set_grad_enabled

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "functional",
    "grad",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]
