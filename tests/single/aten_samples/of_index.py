"""Samples of ``onnx/aten/index.py``."""

import torch

from aten_samples.sample import AtenSample, bools, call, ints, rand, randn

F = randn


def places(*shape: int, below: int) -> torch.Tensor:
    return ints(*shape, low=0, high=below)


def apart(n: int, count: int, below: int) -> torch.Tensor:
    """Places that differ within each row."""
    return torch.stack([torch.randperm(below)[:count] for _ in range(n)])


SAMPLES = [
    AtenSample("embedding.default", lambda n: call(F(7, 3), places(n, 4, below=7))),
    AtenSample("embedding.default", lambda n: call(F(7, 3), places(n, below=7).int(), 0)),
    AtenSample("index_select.default", lambda n: call(F(n, 5), 1, places(3, below=5))),
    AtenSample("gather.default", lambda n: call(F(n, 5), 1, places(n, 3, below=5))),
    AtenSample("take.default", lambda n: call(F(n, 5), places(n, 3, below=5))),
    AtenSample("index.Tensor", lambda n: call(F(n, 5, 4), [None, places(3, 2, below=5)])),
    AtenSample("index.Tensor", lambda n: call(F(n, 5, 4), [torch.arange(n), places(n, below=5) - 5])),
    AtenSample("index.Tensor", lambda n: call(F(n, 5, 4), [None, places(3, 1, below=5), places(2, below=4)])),
    AtenSample("index.Tensor", lambda n: call(F(n, 5, 4), [torch.arange(n)[:, None], None, places(3, below=4)])),
    AtenSample("_unsafe_index.Tensor", lambda n: call(F(n, 5, 4), [None, None, places(3, below=4)])),
    AtenSample("index_put.default", lambda n: call(F(n, 5, 4), [None, torch.tensor([0, 3])], F(n, 2, 4))),
    AtenSample("index_put.default", lambda n: call(F(n, 5, 4), [torch.arange(n), places(n, below=5)], F(4))),
    AtenSample(
        "index_put.default",
        lambda n: call(F(n, 5, 4), [None, places(3, below=5), places(3, below=4)], torch.tensor(1.0)),
    ),
    AtenSample("index_put.default", lambda n: call(F(n, 5), [None, torch.tensor([1, 1, 2])], F(n, 3), True)),
    AtenSample("index_put.default", lambda n: call(F(n, 5, 2), [bools(n, 5)], torch.tensor(7.0))),
    AtenSample("_unsafe_index_put.default", lambda n: call(F(n, 5, 4), [None, torch.tensor([0, 3])], F(n, 2, 4))),
    AtenSample("scatter.src", lambda n: call(F(n, 5), 1, apart(n, 3, 5), F(n, 3))),
    AtenSample("scatter.src", lambda n: call(F(n, 5), 1, apart(n, 3, 5), F(n, 4))),
    AtenSample("scatter.value", lambda n: call(torch.zeros(n, 5, dtype=torch.int64), 1, places(n, 1, below=5), 1)),
    AtenSample("scatter_add.default", lambda n: call(F(n, 5), 1, places(n, 4, below=5), F(n, 4))),
    *(
        AtenSample(
            "scatter_reduce.two", lambda n, r=r: call(F(n, 5), 1, places(n, 4, below=5), rand(n, 4), r), opset=18
        )
        for r in ("sum", "prod", "amax", "amin")
    ),
    AtenSample("scatter.reduce", lambda n: call(F(n, 5), 1, places(n, 4, below=5), F(n, 4), reduce="add")),
    AtenSample("index_add.default", lambda n: call(F(n, 5), 1, torch.tensor([1, 1, 4]), F(n, 3), alpha=2)),
    AtenSample("index_copy.default", lambda n: call(F(n, 5), 1, torch.tensor([1, 4]), F(n, 2))),
    AtenSample("index_fill.int_Scalar", lambda n: call(F(n, 5), 1, torch.tensor([1, 4]), 2.0)),
    AtenSample("index_fill.int_Tensor", lambda n: call(F(n, 5), 1, torch.tensor([1, 4]), torch.tensor(2.0))),
]
