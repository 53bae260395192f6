"""Weight normalisation by a magnitude ``<name>_g`` and a direction ``<name>_v``: the names that checkpoints of OneFlow
have.

Torch's own function of that name warns that it is going. Its hook class does the work here, so that
``remove_weight_norm`` is torch's.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch.nn import Module, Parameter
from torch.nn.utils.weight_norm import WeightNorm

from oneflow.engine.core.errors import ArgumentError

_M = TypeVar("_M", bound=Module)


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """Makes parameter ``name`` of ``module`` g · v / norm(v), one norm per index of ``dim``, or one for all with None.
    Gives the module."""
    if any(isinstance(hook, WeightNorm) and hook.name == name for hook in module._forward_pre_hooks.values()):
        raise ArgumentError(
            f"parameter {name!r} has a weight_norm already; flow.nn.utils.remove_weight_norm takes it away"
        )
    weight = module._parameters.get(name)
    if weight is None:
        known = [other for other, value in module._parameters.items() if value is not None]
        raise ArgumentError(f"{type(module).__name__} has no parameter {name!r}; it has {known}")
    hook = WeightNorm(name, -1 if dim is None else dim)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(torch.norm_except_dim(weight.detach(), 2, hook.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module
