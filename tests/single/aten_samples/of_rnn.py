"""Samples of ``onnx/aten/rnn.py``."""

import torch

from aten_samples.sample import AtenSample, Call, call, randn


def layer(n: int, reverse: bool = False, has_biases: bool = True) -> Call:
    biases = [randn(16), randn(16)] if has_biases else [torch.zeros(16), torch.zeros(16)]
    states = [randn(n, 4), randn(n, 4)]
    rest = (reverse, [], 2, 4, 1, has_biases, False, False, False)
    # The first input with the batch has it in front; the sequence is (time, batch, features).
    return call(randn(5, n, 3), randn(16, 3), randn(16, 4), *biases, *states, *rest)


def lstm(x, w_in, w_hidden, b_in, b_hidden, h, c, reverse, *_):
    """Step by step."""
    made = []
    for step in reversed(x) if reverse else x:
        i, f, g, o = (step @ w_in.T + h @ w_hidden.T + b_in + b_hidden).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        made.append(h)
    return torch.stack(made[::-1] if reverse else made), h, c, torch.zeros(0)


SAMPLES = [
    AtenSample("mkldnn_rnn_layer.default", layer, results=(0, 1, 2), expect=lstm),
    AtenSample("mkldnn_rnn_layer.default", lambda n: layer(n, True), results=(0, 1, 2), expect=lstm),
    AtenSample("mkldnn_rnn_layer.default", lambda n: layer(n, False, False), results=(0, 1, 2), expect=lstm),
]
