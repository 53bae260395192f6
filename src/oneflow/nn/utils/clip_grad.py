"""``flow.nn.utils.clip_grad``: torch's, and over all parts of global gradients."""

from torch.nn.utils import clip_grad_value_

from oneflow.engine.global_tensor.clip import clip_grad_norm_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]
