"""Samples of ``onnx/aten/create.py``. Each takes a tensor, so that there is a batch; what is not set yet is compared by
shape alone."""

import torch

from aten_samples.sample import AtenSample, call, ints, randn

F = randn


def zeros_for(*args: object, **kwargs: object) -> torch.Tensor:
    """What stands for memory that nothing was written to."""
    sizes = next(a for a in args if isinstance(a, (list, tuple)))
    return torch.zeros(list(sizes), dtype=kwargs.get("dtype", torch.float32))


SAMPLES = [
    *(AtenSample(f"{name}.default", lambda n: call([n, 3])) for name in ("zeros", "ones")),
    *(AtenSample(f"{name}.default", lambda n: call([n, 3], dtype=torch.int64)) for name in ("zeros", "ones")),
    *(AtenSample(f"{name}.default", lambda n: call(ints(n, 3))) for name in ("zeros_like", "ones_like", "zero")),
    *(AtenSample(f"new_{name}.default", lambda n: call(ints(n, 3), [2, n])) for name in ("zeros", "ones")),
    AtenSample("empty.memory_format", lambda n: call([n, 3]), expect=zeros_for),
    AtenSample("empty_like.default", lambda n: call(F(n, 3)), expect=torch.zeros_like),
    AtenSample("new_empty.default", lambda n: call(F(n, 3), [n]), expect=zeros_for),
    AtenSample("empty_strided.default", lambda n: call([n, 3], [3, 1]), expect=zeros_for),
    AtenSample("new_empty_strided.default", lambda n: call(F(n), [n, 3], [3, 1]), expect=zeros_for),
    AtenSample("full.default", lambda n: call([n, 3], 2.5)),
    AtenSample("full.default", lambda n: call([n, 3], float("nan"))),
    AtenSample("full.default", lambda n: call([], True), fixed=True),
    AtenSample("full_like.default", lambda n: call(ints(n, 3), 2.5)),
    AtenSample("full_like.default", lambda n: call(ints(n, 3), 2.5, dtype=torch.float64)),
    AtenSample("new_full.default", lambda n: call(F(n, 3), [n, 2], -float("inf"))),
    AtenSample("fill.Scalar", lambda n: call(ints(n, 3), 4)),
    AtenSample("fill.Tensor", lambda n: call(F(n, 3), torch.tensor(4))),
    AtenSample("scalar_tensor.default", lambda n: call(2.5, dtype=torch.float64), fixed=True),
    AtenSample("arange.default", lambda n: call(5), fixed=True),
    AtenSample("arange.default", lambda n: call(n)),
    AtenSample("arange.default", lambda n: call(2.5, dtype=torch.float32), fixed=True),
    AtenSample("arange.start", lambda n: call(n, 3 * n)),
    AtenSample("arange.start", lambda n: call(2, 7), fixed=True),
    AtenSample("arange.start_step", lambda n: call(0, 2 * n, 2, dtype=torch.float32)),
    AtenSample("arange.start_step", lambda n: call(0.5, 2.0, 0.25), fixed=True),
    AtenSample("arange.start_step", lambda n: call(0, 4 * n, n)),
    AtenSample("linspace.default", lambda n: call(0.0, 1.0, 5), fixed=True),
    AtenSample("eye.default", lambda n: call(3), fixed=True),
    AtenSample("eye.m", lambda n: call(3, 4, dtype=torch.int64), fixed=True),
    AtenSample("tril_indices.default", lambda n: call(3, 4, 1), fixed=True),
    AtenSample("triu_indices.default", lambda n: call(3, 4), fixed=True),
    AtenSample("native_dropout.default", lambda n: call(F(n, 3), 0.5, False)),
]
