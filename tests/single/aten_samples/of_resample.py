"""Samples of ``onnx/aten/resample.py``."""

import torch

from aten_samples.sample import AtenSample, call, randn

F = randn
PICTURE = {1: (5,), 2: (4, 5), 3: (3, 4, 5)}
LARGER = {1: [10], 2: [8, 15], 3: [6, 8, 10]}
OTHER = {1: [7], 2: [3, 9], 3: [4, 3, 7]}
NEAREST = [(name, dims) for name in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)]
LINEAR = [("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_trilinear3d", 3), ("upsample_bicubic2d", 2)]


def grid(n: int) -> torch.Tensor:
    return torch.rand(n, 3, 4, 2) * 2.4 - 1.2


SAMPLES = [
    *(AtenSample(f"{name}{d}d.default", lambda n, d=d: call(F(n, 2, *PICTURE[d]), LARGER[d])) for name, d in NEAREST),
    *(AtenSample(f"{name}{d}d.default", lambda n, d=d: call(F(n, 2, *PICTURE[d]), OTHER[d])) for name, d in NEAREST),
    *(AtenSample(f"{name}{d}d.vec", lambda n, d=d: call(F(n, 2, *PICTURE[d]), None, [2.0] * d)) for name, d in NEAREST),
    AtenSample("upsample_nearest2d.vec", lambda n: call(F(n, 2, 4, 5), None, [1.3, 2.3])),
    *(AtenSample(f"{name}.default", lambda n, d=d: call(F(n, 2, *PICTURE[d]), OTHER[d], False)) for name, d in LINEAR),
    *(AtenSample(f"{name}.default", lambda n, d=d: call(F(n, 2, *PICTURE[d]), LARGER[d], True)) for name, d in LINEAR),
    *(
        AtenSample(f"{name}.vec", lambda n, d=d: call(F(n, 2, *PICTURE[d]), None, False, [2.0] * d))
        for name, d in LINEAR
    ),
    AtenSample("upsample_bilinear2d.default", lambda n: call(F(n, 2, 4, 5), [1, 1], False)),
    *(
        AtenSample("affine_grid_generator.default", lambda n, a=a: call(F(n, 2, 3), [n, 1, 4, 5], a))
        for a in (False, True)
    ),
    AtenSample("affine_grid_generator.default", lambda n: call(F(n, 3, 4), [n, 1, 4, 5, 2], False)),
    *(
        AtenSample("grid_sampler_2d.default", lambda n, m=m, p=p: call(F(n, 2, 5, 6), grid(n), m, p, False))
        for m in (0, 1)
        for p in (0, 1)
    ),
    AtenSample("grid_sampler_2d.default", lambda n: call(F(n, 2, 5, 6), grid(n), 0, 2, True), opset=20),
]
