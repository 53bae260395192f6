"""``flow.autograd.graph``: nodes of the backward pass, and hooks on what it keeps, as in torch."""

from torch.autograd.graph import (
    Node,
    disable_saved_tensors_hooks,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)

__all__ = ["Node", "disable_saved_tensors_hooks", "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks"]
