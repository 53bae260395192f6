"""Emitters of aten ops that take pictures to another size or along a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from oneflow.engine.core.errors import UnsupportedError
from oneflow.engine.onnx.aten.builder import AtenBuilder
from oneflow.engine.onnx.aten.family import AtenEmitters
from oneflow.engine.onnx.builder import Operand, Wire

EMITTERS = AtenEmitters()

Scales = list[float | None]
_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
_NEAREST_EXACT = {
    "mode": "nearest",
    "coordinate_transformation_mode": "half_pixel",
    "nearest_mode": "round_prefer_ceil",
}


def _coordinates(align_corners: bool) -> str:
    return "align_corners" if align_corners else "half_pixel"


def _resize(b: AtenBuilder, x: Operand, scales: Scales, attributes: dict[str, Any]) -> Wire:
    """By the sizes of the result; by the scales where torch was given some that the sizes do not have exactly."""
    dims = range(2, x.rank)
    exact = [b.result.size(d) / x.size(d) for d in dims]
    given = [e if s is None else s for s, e in zip(scales or [None] * len(dims), exact)]
    roi = b.constant(torch.zeros(0)) if b.opset < 13 else None
    aligned = attributes["coordinate_transformation_mode"] == "align_corners"
    if aligned or all(abs(s - e) < 1e-9 for s, e in zip(given, exact)):
        no_scales = b.constant(torch.zeros(0)) if b.opset < 13 else None
        return b.node("Resize", x, roi, no_scales, b.vector(b.sizes_of(b.result)), **attributes)
    return b.node("Resize", x, roi, b.constant(torch.tensor([1.0, 1.0, *given])), **attributes)


def _add(name: str, attributes: Callable[[bool], dict[str, Any]], aligns: bool) -> None:
    """Both overloads: scales one by one at the end, or sizes and scales as lists."""

    def emit(b: AtenBuilder, x: Operand, output_size: Any, *rest: Any) -> Wire:
        align_corners = bool(rest[0]) if aligns and rest else False
        return _resize(b, x, list(rest[1 if aligns else 0 :]), attributes(align_corners))

    def emit_vec(b: AtenBuilder, x: Operand, output_size: Any, *rest: Any) -> Wire:
        scales = rest[-1]
        return emit(b, x, output_size, *rest[:-1], *(scales or []))

    EMITTERS.add(f"{name}.default", emit)
    EMITTERS.add(f"{name}.vec", emit_vec)


for _dims in (1, 2, 3):
    _add(f"upsample_nearest{_dims}d", lambda _: _NEAREST, False)
    _add(f"_upsample_nearest_exact{_dims}d", lambda _: _NEAREST_EXACT, False)

for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    _add(_name, lambda align: {"mode": "linear", "coordinate_transformation_mode": _coordinates(align)}, True)

_add(
    "upsample_bicubic2d",
    lambda align: {"mode": "cubic", "coordinate_transformation_mode": _coordinates(align), "cubic_coeff_a": -0.75},
    True,
)

EMITTERS.cannot(
    "ONNX Runtime's smoothing differs from torch's; call interpolate with antialias=False",
    *(
        "_upsample_bilinear2d_aa.default",
        "_upsample_bilinear2d_aa.vec",
        "_upsample_bicubic2d_aa.default",
        "_upsample_bicubic2d_aa.vec",
    ),
)


@EMITTERS.row("affine_grid_generator.default", follows=["size"])
def affine_grid(b: AtenBuilder, theta: Operand, size: Any, align_corners: bool) -> Wire:
    """A grid of places from -1 to 1, each moved by the matrix."""
    sizes = b.result.sizes(range(1, b.result.rank - 1))
    axes = list(torch.meshgrid(*(_steps(count, align_corners, theta.dtype) for count in sizes), indexing="ij"))[::-1]
    places = torch.stack([*axes, torch.ones_like(axes[0])], -1).reshape(-1, len(sizes) + 1)
    moved = b.node("MatMul", b.constant(places), b.transpose(theta, [0, 2, 1]))
    return b.reshape_like(moved, b.result)


def _steps(count: int, align_corners: bool, dtype: torch.dtype) -> torch.Tensor:
    steps = torch.linspace(-1, 1, count, dtype=dtype)
    return steps if align_corners else steps * (count - 1) / count


@EMITTERS.row("grid_sampler_2d.default")
def grid_sampler(
    b: AtenBuilder, x: Operand, grid: Operand, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Wire:
    if b.opset < 16:
        raise UnsupportedError(f"GridSample is there since opset 16, this is {b.opset}; export with opset=16")
    modes = ("bilinear", "nearest", "bicubic") if b.opset < 20 else ("linear", "nearest", "cubic")
    attributes: dict[str, Any] = {
        "mode": modes[interpolation_mode],
        "padding_mode": ("zeros", "border", "reflection")[padding_mode],
    }
    return b.node("GridSample", x, grid, align_corners=int(align_corners), **attributes)
