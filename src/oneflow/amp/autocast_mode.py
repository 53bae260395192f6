"""The path ``oneflow.amp.autocast_mode``: torch's own. On the CPU OneFlow turned autocast off; here it computes in
bfloat16, as asked for."""

from torch.amp.autocast_mode import autocast, autocast_decorator

__all__ = ["autocast", "autocast_decorator"]
