"""Every kind of cluster, forward and backward, as a function of tensors: odd sizes, channels_last and plain, in several
dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from oneflow.engine.program.notes import LocalNote, set_local_note

LAST = torch.channels_last
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """``function`` of tensors that ``inputs`` draws in a dtype; the first ``trained`` of them have gradients."""

    function: Callable[..., Tensor]
    inputs: Callable[[torch.dtype], Sequence[Tensor]]
    trained: int
    dtype: torch.dtype = torch.float32

    def drawn(self) -> list[Tensor]:
        torch.manual_seed(7)
        return list(self.inputs(self.dtype))

    def step(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The result and the gradients."""
        given = [tensor.detach().requires_grad_() if i < self.trained else tensor for i, tensor in enumerate(tensors)]
        made = self.function(*given)
        return made.detach(), *torch.autograd.grad(made, given[: self.trained], torch.ones_like(made) * 0.5)

    def graph(self) -> fx.Graph:
        """The step as a section of a program."""
        return noted(make_fx(self.step)(*self.drawn()).graph)


def noted(graph: fx.Graph) -> fx.Graph:
    """A traced graph without autograd's bookkeeping, its calls noted as those of a program are."""
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.detach.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.op == "call_function":
            set_local_note(node, LocalNote())
    graph.eliminate_dead_code()
    return graph


def rand(*shape: int) -> Callable[[torch.dtype], Tensor]:
    return lambda dtype: torch.randn(shape).to(dtype)


def all_of(*draws: Callable[[torch.dtype], Any]) -> Callable[[torch.dtype], list[Tensor]]:
    return lambda dtype: [draw(dtype) for draw in draws]


def _layer_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x + y, (w.shape[0],), w, b)


def _gelu(x: Tensor, b: Tensor) -> Tensor:
    return F.gelu(x + b)


def _softmax(scores: Tensor, mask: Tensor, bits: Tensor) -> Tensor:
    kept = (bits >= 20).to(scores.dtype) * 1.25
    return torch.softmax((scores * 0.125).masked_fill(mask, -1e4), -1) * kept


def _loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x * 2.0, target)


def _casts(x: Tensor, w: Tensor) -> Tensor:
    return (x.to(torch.bfloat16) * w.to(torch.bfloat16)).float().tanh() + x


def _swish(x: Tensor, y: Tensor) -> Tensor:
    return F.hardswish(x + y) * torch.sigmoid(y)


def _chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x * y + 1.0).mean((2, 3))


def _picture(dtype: torch.dtype) -> Tensor:
    return torch.randn(3, 5, 7, 9).to(dtype).contiguous(memory_format=LAST)


_NORM = Case(_layer_norm, all_of(rand(37, 65), rand(37, 65), rand(65), rand(65)), 4)
_GELU = Case(_gelu, all_of(rand(3, 11, 33), rand(33)), 2)
_SOFTMAX = Case(
    _softmax,
    all_of(
        rand(2, 3, 13, 13),
        lambda _: torch.randn(13, 13) > 0.5,
        lambda _: torch.randint(100, (2, 3, 13, 13), dtype=torch.int32),
    ),
    1,
)

CASES: dict[str, Case] = {
    "layer norm with a residual": _NORM,
    "gelu with a bias": _GELU,
    "softmax with mask and dropout": _SOFTMAX,
    "tail of a loss": Case(_loss, all_of(rand(19, 23), lambda _: torch.randint(2, (19,))), 1),
    "casts of mixed precision": Case(_casts, all_of(rand(17, 31), rand(31)), 2),
    "elementwise, channels_last": Case(_swish, all_of(_picture, _picture), 2),
    "elementwise, plain": Case(_swish, all_of(rand(3, 5, 7, 9), rand(3, 5, 7, 9)), 2),
    "chain with a reduction": Case(_chain, all_of(rand(3, 5, 7, 9), rand(3, 5, 7, 9)), 2),
    **{f"layer norm, {dtype}": Case(_NORM.function, _NORM.inputs, 4, dtype) for dtype in HALVES},
    "gelu, torch.float16": Case(_GELU.function, _GELU.inputs, 2, torch.float16),
    "softmax, torch.bfloat16": Case(_SOFTMAX.function, _SOFTMAX.inputs, 1, torch.bfloat16),
    "elementwise, channels_last, torch.float16": Case(_swish, all_of(_picture, _picture), 2, torch.float16),
}
