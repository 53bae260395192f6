"""Calls of the ops that networks are made of: products, convolutions, pooling, normalisation, losses, indexing,
randomness."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from made_calls import floats, ints, signed
from torch import Tensor
from traced import Executed, made

aten = torch.ops.aten

MASKS = ([True, True, True], [False, True, False], [True, False, False])


def product_calls() -> list[Executed]:
    rows, columns = signed(5, 6), signed(6, 7)
    many, others = signed(4, 5, 6), signed(4, 6, 7)
    return [
        made(aten.mm.default, rows, columns),
        made(aten.mm.default, ints(5, 6), ints(6, 7)),
        made(aten.bmm.default, many, others),
        made(aten.mv.default, rows, signed(6)),
        made(aten.dot.default, signed(7), floats(7)),
        *(made(aten.addmm.default, signed(*bias), rows, columns) for bias in ((7,), (5, 7), (5, 1), (1,))),
        made(aten.addmm.default, signed(7), rows, columns, beta=0.5, alpha=2.0),
        *(
            made(aten.baddbmm.default, signed(*bias), many, others, beta=0.5, alpha=2.0)
            for bias in ((4, 5, 7), (5, 1), (7,))
        ),
    ]


def convolution_calls() -> list[Executed]:
    return [
        *_convolution(signed(5, 6, 7), signed(8, 6, 3), signed(8)),
        *_convolution(signed(5, 6, 7, 7), signed(5, 6, 3, 3), None, stride=2),
        *_convolution(signed(4, 5, 4, 4, 4), signed(6, 5, 2, 2, 2), signed(6)),
        *_convolution(signed(5, 6, 5, 5), signed(6, 5, 3, 3), signed(5), stride=2, transposed=True),
    ]


def grouped_convolution_calls() -> list[Executed]:
    """As many groups as channels, which ranks may divide unevenly; several outputs per channel; several channels per
    group."""
    return [
        *_convolution(signed(4, 5, 5, 5), signed(5, 1, 3, 3), signed(5), groups=5),
        *_convolution(signed(4, 6, 5, 5), signed(12, 1, 3, 3), signed(12), groups=6),
        *_convolution(signed(4, 8, 5, 5), signed(12, 2, 3, 3), None, groups=4),
        *_convolution(signed(5, 8, 4, 4), signed(8, 3, 3, 3), signed(12), stride=2, transposed=True, groups=4),
    ]


def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, stride: int = 1, transposed: bool = False, groups: int = 1
) -> Iterator[Executed]:
    dims = x.dim() - 2
    how = [[stride] * dims, [1] * dims, [1] * dims, transposed, [0] * dims, groups]
    forward = made(aten.convolution.default, x, weight, bias, *how)
    yield forward
    sizes = None if bias is None else list(bias.shape)
    for mask in MASKS if bias is not None else ([True, True, False],):
        yield made(aten.convolution_backward.default, signed(*forward.result.shape), x, weight, sizes, *how, mask)


def pool_calls() -> list[Executed]:
    calls = [made(aten.max_pool2d_with_indices.default, signed(5, 6, 6), [2, 2])]
    for dims in (2, 3):
        x, window = signed(5, 4, *[6] * dims), [2] * dims
        largest = made(getattr(aten, f"max_pool{dims}d_with_indices").default, x, window)
        mean = made(getattr(aten, f"avg_pool{dims}d").default, x, window)
        gradient, zeros, ones = signed(*mean.result.shape), [0] * dims, [1] * dims
        backward = getattr(aten, f"max_pool{dims}d_with_indices_backward").default
        calls += [largest, mean, made(backward, gradient, x, window, window, zeros, ones, False, largest.result[1])]
        calls += [
            made(
                getattr(aten, f"avg_pool{dims}d_backward").default,
                gradient,
                x,
                window,
                window,
                zeros,
                False,
                True,
                None,
            )
        ]
    return calls


def batch_norm_calls() -> list[Executed]:
    images, last = signed(5, 6, 3, 4), torch.channels_last
    inputs = (images + 3, (images + 3).contiguous(memory_format=last), signed(7, 4), signed(4, 3, 5).transpose(1, 2))
    parameters: list[tuple[Any, Any]] = [(floats, signed), (None, signed), (None, None)]
    return [
        one
        for x in inputs
        for pair in parameters
        for training in (True, False)
        for one in _batch_norm(x, *pair, training)
    ]


def _batch_norm(x: Tensor, scale: Any, offset: Any, training: bool) -> Iterator[Executed]:
    channels = x.shape[1]
    weight, bias = (None if draw is None else draw(channels) for draw in (scale, offset))
    mean, variance = signed(channels), floats(channels)
    forward = made(aten.native_batch_norm.default, x, weight, bias, mean.clone(), variance.clone(), training, 0.3, 1e-3)
    yield forward
    saved = forward.result[1:]
    for mask in MASKS:
        yield made(
            aten.native_batch_norm_backward.default,
            signed(*x.shape),
            x,
            weight,
            mean,
            variance,
            *saved,
            training,
            1e-3,
            mask,
        )


def norm_calls() -> list[Executed]:
    layers = [(signed(5, 6, 4), [4]), (signed(5, 4, 6), [4, 6])]
    groups = [(signed(5, 8, 3, 2), 4), (signed(4, 5, 3), 5), (signed(5, 6), 2)]
    return [
        *(one for x, dims in layers for one in _layer_norm(x, dims)),
        *(one for x, count in groups for one in _group_norm(x, count)),
    ]


def _layer_norm(x: Tensor, dims: list[int]) -> Iterator[Executed]:
    scale = floats(*dims)
    forward = made(aten.native_layer_norm.default, x, dims, scale, scale, 1e-3)
    yield forward
    for mask in MASKS:
        yield made(
            aten.native_layer_norm_backward.default, signed(*x.shape), x, dims, *forward.result[1:], scale, scale, mask
        )


def _group_norm(x: Tensor, groups: int) -> Iterator[Executed]:
    scale, sizes = floats(x.shape[1]), (*x.shape[:2], x[0, 0].numel())
    forward = made(aten.native_group_norm.default, x, scale, scale, *sizes, groups, 1e-1)
    yield forward
    for mask in MASKS:
        yield made(
            aten.native_group_norm_backward.default,
            signed(*x.shape),
            x,
            *forward.result[1:],
            scale,
            *sizes,
            groups,
            mask,
        )


def softmax_calls() -> list[Executed]:
    scores = signed(5, 7)
    inputs = [(scores, -1), (scores * 50, 1), (signed(4, 6, 5), 1), (signed(5), 0), (scores.double(), 1)]
    inputs += [(torch.where(scores > 0.5, -torch.inf, scores), 1)]
    calls = []
    for name in ("_softmax", "_log_softmax"):
        for x, dim in inputs:
            forward = made(getattr(aten, name).default, x, dim, False)
            backward = getattr(aten, f"{name}_backward_data").default
            calls += [forward, made(backward, signed(*x.shape).to(x.dtype), forward.result, dim, x.dtype)]
    nothing = torch.where(torch.arange(5)[:, None] == 2, -torch.inf, scores)  # a row that gives zeros
    return calls + [made(aten._safe_softmax.default, x, dim) for x, dim in [*inputs, (nothing, 1)]]


def nll_loss_calls() -> list[Executed]:
    log_p, labels, skipped = signed(5, 7).log_softmax(1), torch.tensor([0, 6, 3, -100, 2]), -100
    calls = [made(aten.nll_loss_forward.default, log_p[0], labels[0], None, 0, skipped)]
    for weight, reduction in ((None, 0), (floats(7), 0), (None, 1), (floats(7), 1), (None, 2), (floats(7), 2)):
        forward = made(aten.nll_loss_forward.default, log_p, labels, weight, reduction, skipped)
        loss, total = forward.result
        backward = aten.nll_loss_backward.default
        calls += [forward, made(backward, signed(*loss.shape), log_p, labels, weight, reduction, skipped, total)]
    return calls


def _numbers(high: int, *shape: int) -> Tensor:
    return ints(*shape, high=high + 1) - 1


def gather_calls() -> list[Executed]:
    x = signed(5, 6)
    return [
        made(aten.gather.default, x, 1, _numbers(6, 5, 4)),
        made(aten.gather.default, x, -2, _numbers(5, 7, 4)),
        made(aten.gather.default, ints(5, 6), 0, _numbers(5, 7, 6)),
        made(aten.gather.default, signed(), 0, torch.tensor(0)),
        made(aten.scatter_add.default, x, 0, _numbers(5, 7, 6), signed(7, 6)),
        made(aten.scatter_add.default, x, 1, _numbers(6, 4, 4), signed(5, 8)),
        made(aten.scatter_add.default, ints(5, 6), 1, _numbers(6, 5, 4), ints(5, 4)),
        made(aten.scatter.src, x, 1, _numbers(1, 5, 1), signed(5, 1)),
        made(aten.scatter.value, x, 1, _numbers(6, 5, 4), 2.0),
        made(aten.index_select.default, x, 0, _numbers(5, 9)),
        made(aten.index_select.default, ints(5, 6), -1, _numbers(6, 4)),
        made(aten.index_add.default, x, 0, _numbers(5, 9), signed(9, 6), alpha=0.5),
        made(aten.index_add.default, ints(5, 6), -1, _numbers(6, 9), ints(5, 9)),
    ]


def index_calls() -> list[Executed]:
    x, from_the_end, pair = signed(5, 6, 4), _numbers(5, 7) - 2, [_numbers(5, 7, 1), _numbers(6, 5)]
    apart = torch.tensor([4, 0, -3])
    return [
        *(made(aten.index.Tensor, x, indices) for indices in ([from_the_end], pair)),
        made(aten.index_put.default, x, [from_the_end], signed(7, 6, 4), True),
        *(made(aten.index_put.default, x, pair, values, True) for values in (signed(7, 5, 4), signed(5, 4), signed())),
        *(made(aten.index_put.default, x, [apart], values) for values in (signed(3, 6, 4), signed(4))),
    ]


def embedding_calls() -> list[Executed]:
    table, index = signed(7, 6), _numbers(7, 5, 4)
    found = [made(aten.embedding.default, table, numbers) for numbers in (index, _numbers(7, 8), torch.tensor(3))]
    backward = aten.embedding_dense_backward.default
    found += [
        made(backward, signed(5, 4, 6), index, 7, padding, by_count)
        for padding in (-1, 2)
        for by_count in (False, True)
    ]
    return [*found, made(backward, signed(8, 6), _numbers(7, 8), 7, -1, False)]


def attention_calls() -> list[Executed]:
    forward, backward = (
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    )
    query, key, value = signed(5, 4, 6, 8), floats(5, 4, 7, 8), signed(5, 4, 7, 8)
    masks = [None, signed(6, 7), signed(5, 1, 6, 7), signed(1, 4, 1, 7)]
    found = [made(forward, query, key, value, 0.0, False, attn_mask=mask) for mask in masks]
    found.append(made(forward, query, query, floats(5, 4, 6, 8), 0.0, True, scale=0.5))
    out, sums = found[0].result
    return [*found, made(backward, signed(5, 4, 6, 8), query, key, value, out, sums, 0.0, False)]


def random_calls() -> list[Executed]:
    step = torch.tensor([7])
    return [made(torch.ops.oneflow.random_bits.default, shape, 42, step) for shape in ([5, 6, 4], [7], [2000, 4])]


def line_calls() -> list[Executed]:
    x = signed(5, 6, 4)
    return [
        made(aten.sort.stable, x, stable=True, dim=1, descending=True),
        made(aten.topk.default, x, 2, 0),
        made(aten.cumsum.default, x, -1),
        made(aten.cumprod.default, x, 0),
        made(aten.sort.default, signed()),
    ]


FAMILIES = {
    "product": product_calls,
    "convolution": convolution_calls,
    "grouped convolution": grouped_convolution_calls,
    "pool": pool_calls,
    "batch norm": batch_norm_calls,
    "norm": norm_calls,
    "softmax": softmax_calls,
    "nll loss": nll_loss_calls,
    "gather": gather_calls,
    "index": index_calls,
    "embedding": embedding_calls,
    "attention": attention_calls,
    "random": random_calls,
    "line": line_calls,
}
