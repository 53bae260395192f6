"""Samples of ``onnx/aten/activation.py``."""

import torch

from aten_samples.sample import AtenSample, call, ints, randn

SIMPLE = (
    "hardsigmoid",
    "hardswish",
    "mish",
    "silu",
    "gelu",
    "elu",
    "celu",
    "hardtanh",
    "leaky_relu",
    "softplus",
    "softshrink",
    "hardshrink",
)


def with_empty_row(n: int) -> torch.Tensor:
    x = randn(n, 2, 4)
    x[:, 0] = -float("inf")
    return x


SAMPLES = [
    *(AtenSample(f"{name}.default", lambda n: call(randn(n, 7) * 3)) for name in SIMPLE),
    AtenSample("gelu.default", lambda n: call(randn(n, 7) * 3, approximate="tanh")),
    AtenSample("elu.default", lambda n: call(randn(n, 7), 1.6732632423543772, 1.0507009873554805)),
    AtenSample("elu.default", lambda n: call(randn(n, 7), 1.5, 2.0, 0.5)),
    AtenSample("celu.default", lambda n: call(randn(n, 7), 2.0)),
    AtenSample("hardtanh.default", lambda n: call(randn(n, 7) * 4, 0.0, 6.0)),
    AtenSample("hardtanh.default", lambda n: call(ints(n, 7), 0, 3)),
    AtenSample("leaky_relu.default", lambda n: call(randn(n, 7), 0.3)),
    AtenSample("softplus.default", lambda n: call(randn(n, 7) * 10, 2.0, 5.0)),
    AtenSample("softshrink.default", lambda n: call(randn(n, 7), 0.3)),
    AtenSample("hardshrink.default", lambda n: call(randn(n, 7), 0.3)),
    AtenSample("threshold.default", lambda n: call(randn(n, 7), 0.2, -3.0)),
    AtenSample("threshold.default", lambda n: call(ints(n, 7), 1, -3)),
    AtenSample("log_sigmoid_forward.default", lambda n: call(randn(n, 7) * 5), results=(0,)),
    AtenSample("_prelu_kernel.default", lambda n: call(randn(n, 3, 4), randn(3, 1))),
    AtenSample("glu.default", lambda n: call(randn(n, 6))),
    AtenSample("glu.default", lambda n: call(randn(n, 6, 3), 1)),
    AtenSample(
        "rrelu_with_noise_functional.default",
        lambda n: call(randn(n, 5), torch.zeros(n, 5), 0.1, 0.3, False),
        results=(0,),
    ),
    AtenSample("_softmax.default", lambda n: call(randn(n, 3, 5), 1, False)),
    AtenSample("_softmax.default", lambda n: call(randn(n, 3, 5), 1, False), opset=11),
    AtenSample("_softmax.default", lambda n: call(torch.tensor(2.0), 0, False), fixed=True),
    AtenSample("_log_softmax.default", lambda n: call(randn(n, 3, 5), -1, False)),
    AtenSample("_safe_softmax.default", lambda n: call(with_empty_row(n), -1)),
]
