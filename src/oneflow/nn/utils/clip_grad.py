"""``flow.nn.utils.clip_grad``: torch's."""

from torch.nn.utils import clip_grad_norm_, clip_grad_value_

__all__ = ["clip_grad_norm_", "clip_grad_value_"]
