"""Functionalization: a graph in which nothing is written gives what the function gave that wrote, and leaves its
arguments as that did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiled_jobs import aten, calls
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.capture.cleanup import clean, writes
from oneflow.engine.capture.functionalize import without_writes
from oneflow.engine.core.errors import GraphError
from oneflow.engine.program.notes import JointNote, set_joint_note


def functional(function: Callable[..., Any], *tensors: Tensor) -> fx.Graph:
    """The joint graph of a function, as ranks have it."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        graph = make_fx(function)(*map(mode.from_tensor, tensors)).graph
    for node in graph.nodes:
        set_joint_note(node, JointNote())
    clean(graph)
    without_writes(graph)
    graph.lint()
    return graph


def evaluated(graph: fx.Graph, *tensors: Tensor) -> Any:
    """What a graph gives when every op, those apart that write, reads copies in other strides, as boxing may leave
    them."""
    env: dict[fx.Node, Any] = {}
    feeds = iter(tensors)
    for node in graph.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
        if node.op == "placeholder":
            env[node] = next(feeds)
        elif node.op == "output":
            return args[0]
        elif writes(node):
            env[node] = node.target(*args, **kwargs)
        else:
            target = aten.reshape.default if node.target is aten.view.default else node.target
            env[node] = target(*(_turned(arg) if isinstance(arg, Tensor) else arg for arg in args), **kwargs)
    raise AssertionError("a graph ends in an output")


def _turned(value: Tensor) -> Tensor:
    """A copy that lies in memory in the reverse order of its dims: what is written into it, or read of it by strides,
    is another value."""
    dims = list(range(value.dim()))[::-1]
    return value.permute(dims).clone(memory_format=torch.contiguous_format).permute(dims)


def same_as(function: Callable[..., Any], *tensors: Tensor) -> fx.Graph:
    graph = functional(function, *tensors)
    for node in calls(graph):
        assert not writes(node) or node.args[0].op == "placeholder", f"{node} writes into what another op made"
    given, other = [t.clone() for t in tensors], [t.clone() for t in tensors]
    expected, found = function(*given), evaluated(graph, *other)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(other, given, rtol=1e-6, atol=1e-6)
    return graph


def base_after_a_view(x: Tensor) -> Tensor:
    y = x * 1
    y[:, 1].copy_(x[:, 0] + 10)
    return y


def other_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    row, column, turned = y[1], y[:, 1:3], y.t()
    row.mul_(3)
    column.add_(row[1:3] + 0)
    return y, row, column, turned, turned[0]


def views_of_views(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    inner = y.view(2, 2, 6).transpose(0, 2)[::2].unsqueeze(1).squeeze(1)
    inner[0].fill_(7)
    inner.permute(2, 0, 1).diagonal(0, 0, 2).zero_()
    return y, inner


def one_write_after_the_other(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    before = y + 0
    z = y.add_(1)
    first = z[0]
    z.mul_(2)
    first.sub_(5)
    return before, y, z, first


def pieces(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    left, right = y.split([2, 4], 1)
    top, *_ = y.unbind(0)
    right.mul_(2)
    top.add_(1)
    left.copy_(right[:, :2])
    return y, left, right, top


def unsafe_pieces(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    left, right = torch.unsafe_split(y, 3, 1)
    _, wide = torch.unsafe_split_with_sizes(y, [1, 5], 1)
    left.sigmoid_()
    right.tanh_()
    return left * right, wide


def powers(x: Tensor) -> tuple[Tensor, ...]:
    y = x.abs() + 1
    y[0].pow_(2.5)
    y[1].pow_(x[1])
    y[2].floor_divide_(x[1].abs() + 1)
    return y, y[0]


def another_dtype(x: Tensor) -> tuple[Tensor, ...]:
    y = x.to(torch.bfloat16) * 1
    y[:, 0].add_(x[:, 1])
    y.mul_(x)
    y[0].copy_(x[1])
    return y, y + 1


def by_index(x: Tensor) -> tuple[Tensor, ...]:
    y = torch.zeros_like(x)
    y.t().masked_fill_(x.t() > 3, 1.0)
    y[x[0].long() % 3, 1] += x[0]
    return y, y.sum(0)


def a_copy_of_what_is_written_to_later(x: Tensor) -> tuple[Tensor, ...]:
    y, z = torch.zeros_like(x), x * 1
    y.copy_(z)
    z.add_(1)
    y[0].eq_(z[1] - 7)
    return y * z, y.le_(3) + z


def broadcast_copy(x: Tensor) -> Tensor:
    y = torch.empty(3, *x.shape)
    y.copy_(x)
    y[1].fill_(2)
    return y


@pytest.mark.parametrize(
    "function",
    [
        base_after_a_view,
        other_views,
        views_of_views,
        one_write_after_the_other,
        pieces,
        unsafe_pieces,
        powers,
        another_dtype,
        by_index,
        a_copy_of_what_is_written_to_later,
        broadcast_copy,
    ],
    ids=lambda f: f.__name__,
)
def test_a_write_is_seen_by_all_that_lie_in_its_memory(function: Callable[..., Any]) -> None:
    same_as(function, torch.arange(24.0).reshape(4, 6))


def in_an_argument(x: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
    kept.mul_(0.5).add_(x.sum())
    copied = torch.zeros_like(kept)
    copied.copy_(kept)
    kept[1].copy_(x[0])
    kept.view(-1)[3:5].add_(1)
    return kept + 0, kept[1] * 2, copied


def test_writes_into_arguments_and_their_views_stay() -> None:
    graph = same_as(in_an_argument, torch.arange(24.0).reshape(4, 6), torch.ones(2, 6))
    assert sum(writes(node) for node in calls(graph)) == 4


def by_strides(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 1
    turned, windows = y.as_strided((6, 4), (1, 6)), y[1].as_strided((3, 4), (2, 1), 6)
    y.as_strided((2, 2), (6, 1), 7).fill_(-1)
    return turned, windows, y.t().contiguous().as_strided((2, 12), (1, 2)), y


def test_views_by_strides_see_the_memory_that_was_traced() -> None:
    graph = same_as(by_strides, torch.arange(24.0).reshape(4, 6))
    assert [n.target for n in calls(graph)].count(aten.as_strided.default) == 2, (
        "that of windows, which overlap, and that of what is filled"
    )


def test_a_view_that_changes_its_argument_is_a_view() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 1
        y.unsqueeze_(0).transpose_(1, 2)
        y[0, 1].zero_()
        return y, y.sum((0, 1))

    same_as(function, torch.arange(24.0).reshape(4, 6))


def test_the_gradient_of_a_pool_in_channels_last_memory_passes_views_alone() -> None:
    """Autograd writes it through views by strides of zeros."""

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            pooled = torch.nn.functional.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), 1)
            (gradient,) = torch.autograd.grad(pooled.exp().sum(), [x])
        return pooled.detach(), gradient

    graph = same_as(function, torch.rand(3, 4, 4, 5))
    targets = {node.target for node in calls(graph)}
    assert not targets & {aten.as_strided.default, aten.new_zeros.default, aten.copy.default}


def test_writes_that_have_no_other_form_are_refused() -> None:
    with pytest.raises(
        GraphError,
        match=r"aten.add.out writes into its argument 'out', which a graph on several ranks cannot do; write it with an op",
    ):
        functional(lambda x: torch.add(x, 1, out=x * 2), torch.ones(2))
    with pytest.raises(
        GraphError,
        match=r"a write into a view of a tensor, made by aten.unfold.default, which a graph on several ranks cannot do",
    ):
        functional(lambda x: (x * 1).unfold(0, 2, 2).zero_(), torch.ones(4))
    with pytest.raises(
        GraphError,
        match=r"aten._foreach_add_.Scalar writes into its argument 'self', which a graph on several ranks cannot do",
    ):
        functional(lambda x: torch._foreach_add_([x, x * 2], 1)[0], torch.ones(4))
