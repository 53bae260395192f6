"""Samples of ``onnx/aten/unary.py``."""

import torch

from aten_samples.sample import AtenSample, bools, call, ints, rand, randn

INSIDE = (
    "acos",
    "asin",
    "atanh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "cos",
    "cosh",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "atan",
    "asinh",
    "sigmoid",
)
POSITIVE = ("acosh", "log", "log2", "log10", "log1p", "reciprocal", "rsqrt", "sqrt")
SIGNED = (
    "abs",
    "neg",
    "sign",
    "sgn",
    "ceil",
    "floor",
    "round",
    "trunc",
    "fix",
    "frac",
    "relu",
    "sinc",
    "deg2rad",
    "rad2deg",
    "signbit",
)


def special(n: int) -> torch.Tensor:
    return torch.tensor([0.5, float("nan"), float("inf"), -float("inf")]).expand(n, 4).contiguous()


SAMPLES = [
    *(AtenSample(f"{name}.default", lambda n: call(rand(n, 5, low=-0.95, high=0.95))) for name in INSIDE),
    *(AtenSample(f"{name}.default", lambda n: call(rand(n, 5, low=1.05, high=3.0))) for name in POSITIVE),
    *(AtenSample(f"{name}.default", lambda n: call(randn(n, 5) * 3)) for name in SIGNED),
    *(
        AtenSample(f"{name}.default", lambda n: call(ints(n, 5)))
        for name in ("abs", "neg", "sign", "relu", "ceil", "trunc", "exp", "sigmoid", "sinc")
    ),
    *(AtenSample(f"{name}.default", lambda n: call(ints(n, 5, dtype=torch.int8))) for name in ("abs", "neg")),
    *(
        AtenSample(f"{name}.default", lambda n: call(bools(n, 5)))
        for name in ("bitwise_not", "logical_not", "isnan", "isinf", "exp")
    ),
    AtenSample("bitwise_not.default", lambda n: call(ints(n, 5))),
    AtenSample("bitwise_not.default", lambda n: call(ints(n, 5, low=0, high=256, dtype=torch.uint8))),
    AtenSample("logical_not.default", lambda n: call(ints(n, 5, low=0, high=2))),
    AtenSample("isnan.default", lambda n: call(special(n))),
    AtenSample("isinf.default", lambda n: call(special(n))),
    AtenSample("isinf.default", lambda n: call(special(n).half())),
    AtenSample("signbit.default", lambda n: call(torch.tensor([[0.0, -0.0, 1.0]]).repeat(n, 1))),
    AtenSample("signbit.default", lambda n: call(ints(n, 3))),
    AtenSample("sinc.default", lambda n: call(torch.tensor([[0.0, 0.5, -1.5]]).repeat(n, 1))),
    AtenSample("round.decimals", lambda n: call(randn(n, 5) * 10, decimals=1)),
    AtenSample("round.default", lambda n: call(torch.tensor([[0.5, 1.5, -0.5, 2.5]]).repeat(n, 1))),
    AtenSample("expm1.default", lambda n: call(randn(n, 5) * 1e-4), tolerance=1e-9),
    AtenSample("log1p.default", lambda n: call(randn(n, 5) * 1e-4), tolerance=1e-9),
    AtenSample("logit.default", lambda n: call(rand(n, 5))),
    AtenSample("logit.default", lambda n: call(torch.tensor([[0.0, 0.4, 1.0]]).repeat(n, 1), 0.01)),
    AtenSample("nan_to_num.default", lambda n: call(special(n))),
    AtenSample("nan_to_num.default", lambda n: call(special(n), 1.0, 2.0, 3.0)),
    AtenSample("nan_to_num.default", lambda n: call(ints(n, 2))),
    AtenSample("exp.default", lambda n: call(randn(n, 5, dtype=torch.float64))),
    AtenSample("tanh.default", lambda n: call(torch.tensor(0.3)), fixed=True),
]
