"""Convolutions of 3 x 3 and 5 x 5 filters at stride 1, and their backward pass, by Winograd's minimal filtering, which
takes 16 multiplications where the sum of a 3 x 3 filter takes 36, and 64 instead of 100 for 5 x 5.

Each is written here as the aten op it stands for. Where the C extension is built, it computes float32 in channels_last
memory of the CPU, and agrees with the aten op but for rounding: its sums are as far from those in float64 as oneDNN's.
"""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from oneflow.engine.ops import native
from oneflow.engine.ops.dense_operands import stride_safe

aten = torch.ops.aten
_CHANNELS_LAST = torch.channels_last
LANES = 16
"""Numbers of channels are multiples of this."""
TILES = 48
"""With fewer tiles of 2 x 2 outputs, bringing the filters into their form costs more than it saves."""
MULTIPLICATIONS = 2**22
"""Of the sum as it stands; below, a call costs more than it saves."""
FOR_A_THREAD = 2**25
"""As many are worth a thread: a fraction of a millisecond. With less, threads would rather wait for each other than
compute."""


def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None, padding: list[int]) -> Tensor:
    """The convolution of pictures with square filters at stride 1."""
    if not _fits(input, weight, padding):
        return aten.convolution(input, weight, bias, [1, 1], padding, [1, 1], False, [0, 0], 1)
    made = torch.empty(_made_shape(input, weight, padding), memory_format=_CHANNELS_LAST)
    _convolve(input, weight, made, padding, weight.stride(), turned=False)
    return made if bias is None else made.add_(bias.reshape(1, -1, 1, 1))


def _convolution_backward(
    gradient: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: list[int] | None,
    padding: list[int],
    output_mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of input, weight and bias, as far as ``output_mask`` asks for them."""
    if not _fits(input, weight, padding) or not _is_picture(gradient):
        return stride_safe(aten.convolution_backward.default)(
            gradient, input, weight, bias_sizes, [1, 1], padding, [1, 1], False, [0, 0], 1, output_mask
        )
    of_input = of_weight = of_bias = input.new_empty(0)
    if output_mask[0]:
        filters, channels, *taps = weight.stride()
        of_input = torch.empty_like(input, memory_format=_CHANNELS_LAST)
        _convolve(
            gradient,
            weight,
            of_input,
            [weight.shape[2] - 1 - one for one in padding],
            (channels, filters, *taps),
            turned=True,
        )
    if output_mask[1]:
        of_weight = torch.empty_like(weight, memory_format=_CHANNELS_LAST)
        sizes = (*_sizes(input), *_sizes(gradient)[1:])
        _library().convolve_filters(
            input.data_ptr(),
            gradient.data_ptr(),
            of_weight.data_ptr(),
            *sizes,
            *padding,
            weight.shape[2],
            *of_weight.stride(),
            False,
            _threads(gradient, weight),
        )
    if output_mask[2]:
        of_bias = gradient.sum((0, 2, 3))
    return of_input, of_weight, of_bias


def _convolve(
    read: Tensor, weight: Tensor, made: Tensor, padding: list[int], steps: tuple[int, ...], turned: bool
) -> None:
    sizes = (*_sizes(read), *_sizes(made)[1:])
    _library().convolve(
        read.data_ptr(),
        weight.data_ptr(),
        made.data_ptr(),
        *sizes,
        *padding,
        weight.shape[2],
        *steps,
        turned,
        _threads(read if turned else made, weight),
    )


def _library() -> ModuleType:
    assert native.winograd is not None  # nothing fits where it is not built
    return native.winograd


def _fits(input: Tensor, weight: Tensor, padding: list[int]) -> bool:
    """Whether the extension takes these, and is faster."""
    if (
        native.winograd is None
        or not _is_picture(input)
        or weight.dtype is not torch.float32
        or weight.device.type != "cpu"
    ):
        return False
    filters, channels = weight.shape[:2]
    pictures, _, height, width = _made_shape(input, weight, padding)
    if filters % LANES or channels % LANES or min(height, width) < 1:
        return False
    tiles = pictures * ((height + 1) // 2) * ((width + 1) // 2)
    return tiles >= TILES and 4 * weight.shape[2] ** 2 * tiles * filters * channels >= MULTIPLICATIONS


def _threads(made: Tensor, weight: Tensor) -> int:
    multiplications = made.numel() * (weight.numel() // weight.shape[0])
    return max(1, min(torch.get_num_threads(), multiplications // FOR_A_THREAD))


def _is_picture(one: Tensor) -> bool:
    return one.dtype is torch.float32 and one.device.type == "cpu" and one.is_contiguous(memory_format=_CHANNELS_LAST)


def _made_shape(input: Tensor, weight: Tensor, padding: list[int]) -> tuple[int, int, int, int]:
    lost = weight.shape[2] - 1
    return (
        input.shape[0],
        weight.shape[0],
        input.shape[2] + 2 * padding[0] - lost,
        input.shape[3] + 2 * padding[1] - lost,
    )


def _sizes(picture: Tensor) -> tuple[int, int, int, int]:
    pictures, channels, height, width = picture.shape
    return pictures, height, width, channels


# The library object must live as long as the ops are registered.
_LIBRARY = torch.library.Library("oneflow", "FRAGMENT")
_LIBRARY.define("winograd_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] padding) -> Tensor")
_LIBRARY.define(
    "winograd_convolution_backward(Tensor gradient, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] "
    "padding, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
)
_LIBRARY.impl("winograd_convolution", _convolution, "CompositeExplicitAutograd")
_LIBRARY.impl("winograd_convolution_backward", _convolution_backward, "CompositeExplicitAutograd")
