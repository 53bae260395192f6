"""Jobs in which a kernel gives its result other strides than the trace foretold: they run, and give the numbers of
plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sample import rand
from torch import Tensor

import oneflow as flow

SHAPE = (5, 4, 8, 6)
X, FIRST = rand(*SHAPE), rand(*SHAPE, seed=1, low=0.5, high=1.5)


class Given:
    """An initializer that gives exactly these values."""

    def draw(self, spec: Any, generator: Any) -> Tensor:
        return torch.from_numpy(FIRST.copy())


def swapped(x: Any) -> Any:
    return flow.transpose(x, (0, 1, 3, 2))


def normed(x: Any) -> Any:
    return swapped(flow.layers.batch_normalization(swapped(x), axis=1, epsilon=1e-3, name="bn"))


def plain_norm(x: Tensor, is_train: bool) -> Tensor:
    dims = (0, 2, 3)
    mean, variance = (x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)) if is_train else (0.0, 1.0)
    return (x - mean) / (variance + 1e-3) ** 0.5


Chain = tuple[Callable[[Any], Any], Callable[[Tensor, bool], Tensor]]
CHAINS: dict[str, Chain] = {
    "batch norm": (
        lambda x: flow.reshape(normed(x), (5, 4, 48)),
        lambda x, train: plain_norm(x, train).reshape(5, 4, 48),
    ),
    "batch norm, group norm": (
        lambda x: flow.nn.GroupNorm(normed(x), 2, affine=False),
        lambda x, train: F.group_norm(plain_norm(x, train), 2),
    ),
    "group norm, whose gradient is transposed": (  # no error: the kernel takes its arguments for equally laid out
        lambda x: swapped(flow.nn.hardtanh(flow.nn.GroupNorm(x, 2, affine=False), -1.0, 1.0)),
        lambda x, train: F.hardtanh(F.group_norm(x, 2)).transpose(2, 3),
    ),
    "gather, cast, concat": (
        lambda x: flow.concat(
            [flow.reshape(cast(gathered(x)), (5, 192)), flow.reshape(gathered(normed(x)), (5, 192))], axis=1
        ),
        lambda x, train: torch.cat(
            [x[:, [2, 0, 0, 3]].reshape(5, 192), plain_norm(x, train)[:, [2, 0, 0, 3]].reshape(5, 192)], 1
        ),
    ),
}


def gathered(x: Any) -> Any:
    places = [flow.constant(place, flow.int32, (1,)) for place in (2, 0, 0, 3)]
    return swapped(flow.gather(swapped(x), flow.concat(places, axis=0), axis=1))


def cast(x: Any) -> Any:
    return flow.parallel_cast(x, distribute=flow.distribute.broadcast())


@pytest.mark.parametrize("kind", ["predict", "train"])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_job_computes_and_learns_as_torch_does(chain: Chain, kind: str) -> None:
    ours, plain = chain
    first = torch.from_numpy(FIRST).double().requires_grad_()
    expected = plain(torch.from_numpy(X).double() * first, kind == "train")
    uneven = np.linspace(0.5, 1.5, expected.numel()).reshape(expected.shape).astype(np.float32)

    @flow.global_function(kind)
    def job(x=flow.FixedTensorDef(SHAPE), w=flow.FixedTensorDef(uneven.shape)):
        y = ours(x * flow.get_variable("first", SHAPE, initializer=Given()))
        if kind == "train":
            flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [1.0]), momentum=0.0).minimize(
                flow.math.reduce_sum(y * w)
            )
        return y

    np.testing.assert_allclose(job(X, uneven).get().numpy(), expected.detach().numpy(), 1e-4, 1e-5)
    if kind == "train":
        (expected * torch.from_numpy(uneven)).sum().backward()
        step = FIRST - flow.get_all_variables()["first"].numpy()
        np.testing.assert_allclose(step, first.grad.numpy(), 1e-3, 1e-5)
