"""Emitters of recurrent layers that torch runs as one kernel. Others come as their steps, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()

_LSTM = 2
# torch keeps the gates as input, forget, cell, output; ONNX as input, output, forget, cell.
_GATES = (0, 3, 1, 2)


def _in_order(b: AtenBuilder, x: Operand) -> Wire:
    """The gates of a weight or bias in ONNX's order, behind a dim for the direction."""
    hidden = x.size(0) // len(_GATES)
    gates = b.split(x, [hidden] * len(_GATES), 0)
    return b.unsqueeze(b.node("Concat", *(gates[i] for i in _GATES), axis=0), 0)


@EMITTERS.row("mkldnn_rnn_layer.default")
def rnn_layer(
    b: AtenBuilder,
    x: Operand,
    input_weight: Operand,
    hidden_weight: Operand,
    input_bias: Operand,
    hidden_bias: Operand,
    hx: Operand,
    cx: Operand,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> list[Wire | None]:
    """One layer in one direction, over (time, batch, features), whatever the whole module has of both."""
    if mode != _LSTM or batch_sizes:
        raise UnsupportedError(
            f"only LSTM layers of unpacked sequences are exported as one operator, this is mode {mode}; unpack the "
            f"sequence"
        )
    bias = b.node("Concat", _in_order(b, input_bias), _in_order(b, hidden_bias), axis=1) if has_biases else None
    states = [b.unsqueeze(state, 0) if state.rank == 2 else state for state in (hx, cx)]
    made = b.many(
        "LSTM",
        [x, _in_order(b, input_weight), _in_order(b, hidden_weight), bias, None, *states],
        [x.dtype] * 3,
        {"hidden_size": hidden_size, "direction": "reverse" if reverse else "forward"},
    )
    values: list[Wire | None] = [b.reshape_like(wire, like) for wire, like in zip(made, b.results)]
    return [*values, *[None] * (len(b.results) - 3)]


EMITTERS.cannot(
    "sequences of different length packed together have no form in ONNX; pad them", "_pack_padded_sequence.default"
)
