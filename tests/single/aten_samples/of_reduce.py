"""Samples of ``onnx/aten/reduce.py``."""

import torch

from aten_samples.sample import AtenSample, bools, call, ints, rand, randn

F, I, B = randn, ints, bools
WHOLE = ("sum", "mean", "amax", "max", "amin", "min", "prod")
DIMS = ("sum.dim_IntList", "mean.dim", "amax.default", "amin.default", "logsumexp.default")

SAMPLES = [
    *(AtenSample(f"{name}.default", lambda n: call(F(n, 3))) for name in WHOLE),
    *(
        AtenSample(f"{name}.default", lambda n: call(I(n, 3, dtype=torch.int32)))
        for name in ("sum", "amax", "min", "prod", "any", "all")
    ),
    *(
        AtenSample(f"{name}.default", lambda n: call(B(n, 3)))
        for name in ("sum", "amax", "min", "any", "all", "count_nonzero")
    ),
    *(AtenSample(f"{name}.default", lambda n: call(torch.tensor(2.0)), fixed=True) for name in ("sum", "max", "any")),
    *(AtenSample(name, lambda n: call(F(n, 3, 4), [1])) for name in DIMS),
    *(AtenSample(name, lambda n: call(F(n, 3, 4), [0, -1], True)) for name in DIMS),
    AtenSample("sum.dim_IntList", lambda n: call(F(n, 3, 4), [])),
    AtenSample("sum.dim_IntList", lambda n: call(F(n, 3), None, dtype=torch.float64)),
    AtenSample("sum.dim_IntList", lambda n: call(I(n, 3, dtype=torch.uint8, low=0), [1])),
    AtenSample("mean.dim", lambda n: call(F(n, 3), [-1], False, dtype=torch.float64)),
    AtenSample("prod.dim_int", lambda n: call(F(n, 3, 4), 1)),
    AtenSample("prod.dim_int", lambda n: call(I(n, 3, 4), 0, True)),
    *(AtenSample(f"{name}.dim", lambda n: call(B(n, 3, 4), 1)) for name in ("any", "all")),
    *(AtenSample(f"{name}.dim", lambda n: call(I(n, 3, low=0, dtype=torch.uint8), 1, True)) for name in ("any", "all")),
    *(AtenSample(f"{name}.dims", lambda n: call(B(n, 3, 4), [1, 2])) for name in ("any", "all")),
    AtenSample("count_nonzero.dim_IntList", lambda n: call(I(n, 3, low=0, high=2), [1])),
    *(AtenSample(f"{name}.correction", lambda n: call(F(n, 3, 4))) for name in ("var", "std", "var_mean", "std_mean")),
    *(
        AtenSample(f"{name}.correction", lambda n: call(F(n, 3, 4), [1]))
        for name in ("var", "std", "var_mean", "std_mean")
    ),
    *(
        AtenSample(f"{name}.correction", lambda n: call(F(n, 3, 4), [0, 2], correction=0, keepdim=True))
        for name in ("var", "std", "var_mean", "std_mean")
    ),
    *(
        AtenSample("linalg_vector_norm.default", lambda n, p=p: call(F(n, 5), p, [1], True))
        for p in (0, 1, 2, 3.0, float("inf"), -float("inf"))
    ),
    AtenSample("linalg_vector_norm.default", lambda n: call(F(n, 5))),
    AtenSample("norm.ScalarOpt_dim", lambda n: call(F(n, 5), 2, [1], True)),
    AtenSample("max.dim", lambda n: call(F(n, 5), 1)),
    AtenSample("min.dim", lambda n: call(F(n, 5), -1, True)),
    AtenSample("max.dim", lambda n: call(torch.stack([torch.randperm(5) for _ in range(n)]), 1)),
    AtenSample("min.dim", lambda n: call(F(n, 5, 2), 1)),
    AtenSample("argmax.default", lambda n: call(F(n, 5))),
    AtenSample("argmax.default", lambda n: call(F(n, 5), 1)),
    AtenSample("argmax.default", lambda n: call(torch.ones(n, 5), 1, True)),
    AtenSample("argmin.default", lambda n: call(torch.stack([torch.randperm(5) for _ in range(n)]), -1)),
    AtenSample("argmin.default", lambda n: call(F(n, 5), None, True)),
    AtenSample("aminmax.default", lambda n: call(F(n, 5))),
    AtenSample("aminmax.default", lambda n: call(F(n, 5), dim=1, keepdim=True)),
    AtenSample("median.dim", lambda n: call(F(n, 5), 1)),
    AtenSample("median.dim", lambda n: call(F(n, 6, 2), 1, True)),
    AtenSample("nansum.default", lambda n: call(torch.tensor([[1.0, float("nan"), 2.0]]).repeat(n, 1), [1])),
    AtenSample("nansum.default", lambda n: call(I(n, 3))),
    AtenSample("cumsum.default", lambda n: call(F(n, 5), 1)),
    AtenSample("cumsum.default", lambda n: call(F(n, 5), 0)),
    AtenSample("cumsum.default", lambda n: call(B(n, 5), -1)),
    AtenSample("cumsum.default", lambda n: call(I(n, 5), -1, dtype=torch.float32)),
    AtenSample("cumprod.default", lambda n: call(rand(n, 5, 2), 1)),
    AtenSample("cumprod.default", lambda n: call(I(n, 5), -1)),
    AtenSample("cumprod.default", lambda n: call(torch.tensor(2.0), 0), fixed=True),
]
