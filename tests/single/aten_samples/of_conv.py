"""Samples of ``onnx/aten/conv.py``."""

import torch

from aten_samples.sample import AtenSample, call, randn

F = randn
PLAIN = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
FLAGS = (False, False, True, True)

SAMPLES = [
    AtenSample("convolution.default", lambda n: call(F(n, 2, 6, 5), F(3, 2, 3, 3), F(3), *PLAIN)),
    AtenSample(
        "convolution.default",
        lambda n: call(F(n, 4, 6, 5), F(6, 2, 3, 2), None, [2, 1], [1, 2], [1, 2], False, [0, 0], 2),
    ),
    AtenSample("convolution.default", lambda n: call(F(n, 2, 9), F(3, 2, 3), F(3), [2], [1], [2], False, [0], 1)),
    AtenSample(
        "convolution.default", lambda n: call(F(n, 2, 4, 4, 4), F(3, 2, 2, 2, 2), None, [1], [0], [1], False, [0], 1)
    ),
    AtenSample(
        "convolution.default",
        lambda n: call(F(n, 4, 5, 4), F(4, 3, 3, 3), F(6), [2, 2], [1, 0], [1, 1], True, [1, 1], 2),
    ),
    AtenSample("_convolution.default", lambda n: call(F(n, 2, 6, 5), F(3, 2, 3, 3), F(3), *PLAIN, *FLAGS)),
    AtenSample(
        "convolution_overrideable.default",
        lambda n: call(F(n, 2, 6, 5), F(3, 2, 3, 3), F(3), *PLAIN),
        expect=lambda x, w, b, *_: torch.conv2d(x, w, b),
    ),
    AtenSample("max_pool2d_with_indices.default", lambda n: call(F(n, 2, 7, 6), [3, 2], [2, 2], [1, 0])),
    AtenSample("max_pool2d_with_indices.default", lambda n: call(F(n, 2, 7, 6), [2, 2], [2, 2], [0, 0], [1, 1], True)),
    AtenSample("max_pool2d_with_indices.default", lambda n: call(F(n, 2, 9, 9), [3], [2], [1], [2]), results=(0,)),
    AtenSample("max_pool2d_with_indices.default", lambda n: call(F(3, 7, 6), [2, 2]), fixed=True),
    AtenSample("max_pool3d_with_indices.default", lambda n: call(F(n, 2, 5, 6, 4), [2, 2, 2])),
    AtenSample("avg_pool1d.default", lambda n: call(F(n, 2, 7), [3], [2], [1])),
    AtenSample("avg_pool2d.default", lambda n: call(F(n, 2, 7, 6), [2, 3])),
    AtenSample("avg_pool2d.default", lambda n: call(F(n, 2, 7, 6), [3, 3], [2, 2], [1, 1])),
    AtenSample("avg_pool2d.default", lambda n: call(F(n, 2, 7, 6), [3, 3], [2, 2], [1, 1], True, True)),
    AtenSample("avg_pool2d.default", lambda n: call(F(n, 2, 8, 6), [3, 3], [2, 2], [1, 1], True, False)),
    AtenSample("avg_pool2d.default", lambda n: call(F(n, 2, 8, 6), [3, 3], [2, 2], [1, 1], True, True, 4)),
    AtenSample("avg_pool2d.default", lambda n: call(F(2, 8, 6), [2, 2]), fixed=True),
    AtenSample("avg_pool3d.default", lambda n: call(F(n, 2, 5, 6, 4), [2, 2, 2], [2, 2, 2], [1, 0, 1])),
    AtenSample("_adaptive_avg_pool2d.default", lambda n: call(F(n, 2, 7, 6), [3, 4])),
    AtenSample("_adaptive_avg_pool2d.default", lambda n: call(F(2, 7, 6), [1, 1]), fixed=True),
    AtenSample("_adaptive_avg_pool3d.default", lambda n: call(F(n, 2, 5, 6, 4), [2, 3, 3])),
    AtenSample("adaptive_max_pool2d.default", lambda n: call(F(n, 2, 6, 8), [3, 2]), results=(0,)),
    AtenSample("adaptive_max_pool3d.default", lambda n: call(F(n, 2, 4, 6, 4), [2, 3, 1]), results=(0,)),
]
