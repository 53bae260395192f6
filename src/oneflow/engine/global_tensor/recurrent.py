"""Initial states of recurrent modules on global tensors.

torch's recurrent modules create a local zero state when they are called without one. A global module gets a forward
pre-hook that passes a global zero state instead.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

_RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def begin_with_global_zeros(module: nn.Module) -> None:
    """Adds the hook to a recurrent module; other modules are unchanged."""
    if isinstance(module, _RECURRENT) and _pass_zeros not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_pass_zeros, with_kwargs=True)


def _pass_zeros(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    from oneflow.engine.global_tensor.tensor import GlobalTensor

    (inputs, state), named = (*args, None, None)[:2], dict(kwargs)
    inputs = named.pop("input", inputs)
    if not isinstance(inputs, GlobalTensor) or named.pop("hx", state) is not None:
        return args, kwargs
    return (inputs, _zeros(module, inputs)), named


def _zeros(module: Any, inputs: Tensor) -> Any:
    """Returns the state of zeros on the placement of ``inputs``, equal on all ranks."""
    from oneflow.engine.global_tensor.create import zeros
    from oneflow.engine.global_tensor.sbp import broadcast

    where: Any = inputs
    axes = len(where.sbp)
    shapes = _cell_shapes(module, inputs) if isinstance(module, nn.RNNCellBase) else _layer_shapes(module, inputs)
    states = tuple(
        zeros(*shape, dtype=inputs.dtype, placement=where.placement, sbp=[broadcast] * axes) for shape in shapes
    )
    return states if isinstance(module, (nn.LSTM, nn.LSTMCell)) else states[0]


def _cell_shapes(module: Any, inputs: Tensor) -> list[tuple[int, ...]]:
    return [(*inputs.shape[:-1], module.hidden_size)] * 2


def _layer_shapes(module: Any, inputs: Tensor) -> list[tuple[int, ...]]:
    layers = module.num_layers * (2 if module.bidirectional else 1)
    batch = (inputs.shape[0 if module.batch_first else 1],) if inputs.dim() == 3 else ()
    return [(layers, *batch, module.proj_size or module.hidden_size), (layers, *batch, module.hidden_size)]
