"""Samples of ``onnx/aten/sort.py``."""

import torch

from aten_samples.sample import AtenSample, bools, call, randn

F = randn


def whole(n: int) -> torch.Tensor:
    return torch.stack([torch.randperm(6) for _ in range(n)])


SAMPLES = [
    AtenSample("sort.default", lambda n: call(F(n, 5))),
    AtenSample("sort.default", lambda n: call(F(n, 5, 2), 1, True)),
    AtenSample("sort.default", lambda n: call(F(n, 5), 0)),
    AtenSample("sort.default", lambda n: call(whole(n).to(torch.int8))),
    AtenSample("sort.default", lambda n: call(torch.tensor(2.0)), fixed=True),
    AtenSample("sort.stable", lambda n: call(bools(n, 5), stable=True, dim=-1, descending=True)),
    AtenSample("sort.stable", lambda n: call(whole(n) // 2, stable=True)),
    AtenSample("topk.default", lambda n: call(F(n, 5), 2)),
    AtenSample("topk.default", lambda n: call(whole(n), 3, 1, False)),
    AtenSample("kthvalue.default", lambda n: call(F(n, 5), 2)),
    AtenSample("kthvalue.default", lambda n: call(F(n, 5, 2), 3, 1, True)),
    AtenSample("isin.Tensor_Tensor", lambda n: call(whole(n), torch.tensor([[1, 3], [4, 9]]))),
    AtenSample("isin.Tensor_Tensor", lambda n: call(whole(n).float(), torch.tensor([1, 3]), invert=True)),
    AtenSample("searchsorted.Tensor", lambda n: call(torch.tensor([-1.0, 0.0, 1.0]), F(n, 5))),
    AtenSample(
        "searchsorted.Tensor",
        lambda n: call(whole(n).sort(-1)[0], whole(n)[:, :2].contiguous(), right=True, out_int32=True),
    ),
    AtenSample("searchsorted.Tensor", lambda n: call(whole(n).sort(-1)[0], whole(n)[:, :2].contiguous(), side="left")),
    AtenSample("bucketize.Tensor", lambda n: call(F(n, 5), torch.tensor([-1.0, 0.0, 1.0]))),
    AtenSample("bucketize.Tensor", lambda n: call(whole(n), torch.tensor([1, 3, 4]), right=True, out_int32=True)),
]
