"""Calls of torch's kernels that read some operands as if they were contiguous, whatever their strides.

Autograd calls ``contiguous`` before these kernels. In a graph that was traced on contiguous tensors that leaves no
node, and what a program then hands to the kernel may be a slice or a transposed view. So programs and global tensors
call the functions in ``STRIDE_SAFE`` instead of these ops. They copy an operand only where the kernel would misread it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class DenseOperands:
    """The operands of an op whose strides its kernel on a CPU ignores.

    Attributes:
        why: What the kernel does.
        contiguous: Operands that must be contiguous.
        one_format: Operands that must all be contiguous, or all in channels-last memory.
        rows: Operands whose last dim must have stride 1.
        regular: Operands whose dims of size 1 must have the strides that torch gives to new tensors.
    """

    why: str
    contiguous: tuple[str, ...] = ()
    one_format: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    regular: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All operands whose strides matter."""
        return (*self.contiguous, *self.one_format, *self.rows, *self.regular)


def _onednn() -> dict[Any, DenseOperands]:
    """Those of oneDNN; a build of torch may lack them."""
    if not torch.backends.mkldnn.is_available():
        return {}
    ops = torch.ops.mkldnn._linear_pointwise.default, torch.ops.mkldnn._convolution_pointwise.default
    return dict.fromkeys(ops, DenseOperands("reads the bias by its data pointer", contiguous=("B",)))


_EMBEDDING_BAG = "reads indices and offsets by their data pointers; the backward pass raises"
_INDICES = "reads the indices by their data pointer, and may write out of bounds"
STRIDES_IGNORED: dict[Any, DenseOperands] = {
    aten.native_layer_norm_backward.default: DenseOperands(
        "reads mean and rstd by their data pointers", contiguous=("mean", "rstd")
    ),
    aten.native_batch_norm_backward.default: DenseOperands(
        "reads the vectors of contiguous images by their data pointers; takes images of one sample in channels-last "
        "memory for contiguous ones if the stride of dim 0 is unusual",
        contiguous=("weight", "running_mean", "running_var", "save_mean", "save_invstd"),
        one_format=("grad_out", "input"),
    ),
    aten.native_group_norm.default: DenseOperands(
        "reads weight and bias by their data pointers; raises on an input in neither format",
        contiguous=("weight", "bias"),
        one_format=("input",),
    ),
    aten.native_group_norm_backward.default: DenseOperands(
        "reads all operands by their data pointers, in the memory format of the input; a gradient in another one is "
        "misread, or crashes the process",
        contiguous=("mean", "rstd", "weight"),
        one_format=("grad_out", "input"),
    ),
    aten._scaled_dot_product_flash_attention_for_cpu.default: DenseOperands(
        "multiplies rows as if their elements were adjacent", rows=("query", "key", "value")
    ),
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: DenseOperands(
        "multiplies rows as if their elements were adjacent", rows=("query", "key", "value", "out")
    ),
    aten.convolution_backward.default: DenseOperands(
        "tells the memory format of an operand in two ways, which disagree on unusual strides of dims of size 1",
        regular=("input", "weight"),
    ),
    aten.adaptive_max_pool3d_backward.default: DenseOperands(_INDICES, contiguous=("indices",)),
    aten.fractional_max_pool2d_backward.default: DenseOperands(_INDICES, contiguous=("indices",)),
    aten.fractional_max_pool3d_backward.default: DenseOperands(_INDICES, contiguous=("indices",)),
    aten.median.dim: DenseOperands("returns uninitialized memory for an expanded tensor", contiguous=("self",)),
    aten.nanmedian.dim: DenseOperands("returns uninitialized memory for an expanded tensor", contiguous=("self",)),
    aten._embedding_bag.default: DenseOperands(_EMBEDDING_BAG, contiguous=("indices", "offsets")),
    aten._embedding_bag_backward.default: DenseOperands(
        _EMBEDDING_BAG, contiguous=("indices", "offsets", "offset2bag")
    ),
    aten.nll_loss2d_backward.default: DenseOperands("raises on scores in other memory", contiguous=("self",)),
    aten._pdist_forward.default: DenseOperands("raises on points in other memory", contiguous=("self",)),
    aten._pdist_backward.default: DenseOperands("raises on points in other memory", contiguous=("self", "pdist")),
    **_onednn(),
}
"""What torch 2.13 does on a CPU. ``tests/compile/test_dense_operands.py`` runs every op of a program on operands of many
strides and fails for an op that is missing here, and for an operand that torch has come to read right."""

WRITTEN_AS_CONTIGUOUS: dict[Any, Any] = {
    aten._softmax.out: aten._softmax.default,
    aten._log_softmax.out: aten._log_softmax.default,
}
"""Ops that write ``out`` as if it were contiguous, each with the op that makes a new tensor."""


def stride_safe(op: Any) -> Any:
    """Returns a function that gives what ``op`` gives on contiguous operands; ``op`` itself if its kernel takes any
    strides."""
    return STRIDE_SAFE.get(op, op)


def safe_call(op: Any, needs: DenseOperands) -> Callable[..., Any]:
    """Returns a function that calls ``op`` after it has made these operands dense."""
    names = [argument.name for argument in op._schema.arguments]
    kinds = (
        (needs.one_format, _in_one_format),
        (needs.contiguous, _contiguous),
        (needs.rows, _rows),
        (needs.regular, _regular),
    )
    adjustments = [(tuple(map(names.index, group)), adjust) for group, adjust in kinds if group]
    count = max((place + 1 for places, _ in adjustments for place in places), default=0)  # none of these has a default
    kernel = _KERNELS.get(op, op._op)  # the C++ entry, without the Python wrapper around it

    def call(*given: Any, **kwargs: Any) -> Any:
        args = [*given, *map(kwargs.pop, names[len(given) : count])]
        for places, adjust in adjustments:
            for place, operand in zip(places, adjust([args[place] for place in places])):
                args[place] = operand
        return kernel(*args, **kwargs)

    return call


def _safe_write(op: Any, functional: Any) -> Callable[..., Any]:
    def call(*args: Any, out: Tensor) -> Tensor:
        return op._op(*args, out=out) if out.is_contiguous() else out.copy_(functional._op(*args))

    return call


def _contiguous(operands: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if operand is None else operand.contiguous() for operand in operands]


def _rows(operands: Sequence[Tensor]) -> list[Tensor]:
    return [operand if operand.stride(-1) == 1 else operand.contiguous() for operand in operands]


def _regular(operands: Sequence[Tensor]) -> list[Tensor]:
    return [one.contiguous() if 1 in one.shape and not _is_channels_last(one) else one for one in operands]


def _in_one_format(operands: Sequence[Tensor]) -> list[Tensor]:
    """All operands contiguous; or in channels-last memory, if the last one is."""
    if not _is_channels_last(operands[-1]):
        return [operand.contiguous() for operand in operands]
    last = _CHANNELS_LAST[operands[-1].dim()]
    return [one if _is_channels_last(one) else one.clone(memory_format=last) for one in operands]


def _is_channels_last(value: Tensor) -> bool:
    """Whether a tensor has the strides that torch gives to channels-last memory, those of dims of size 1 included:
    kernels tell the format by them."""
    if value.dim() not in _CHANNELS_LAST or value.is_contiguous():
        return False
    order = [1, *range(value.dim() - 1, 1, -1), 0]
    sizes, strides = value.shape, value.stride()
    return strides[1] == 1 and all(strides[b] == strides[a] * sizes[a] for a, b in pairwise(order))


def _group_norm_backward(*args: Any) -> Any:
    """Always computes the gradient of the input: in channels-last memory the kernel crashes where it is not wanted."""
    *operands, wanted = args
    made = aten.native_group_norm_backward.default._op(*operands, [True, *wanted[1:]])
    return made if wanted[0] else (None, *made[1:])


_KERNELS: dict[Any, Callable[..., Any]] = {aten.native_group_norm_backward.default: _group_norm_backward}
STRIDE_SAFE: dict[Any, Callable[..., Any]] = {
    **{op: safe_call(op, needs) for op, needs in STRIDES_IGNORED.items()},
    **{op: _safe_write(op, functional) for op, functional in WRITTEN_AS_CONTIGUOUS.items()},
}
"""What to call instead of the ops of both tables."""
