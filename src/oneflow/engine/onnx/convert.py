"""``flow.onnx.convert_to_onnx_and_check``: export, then ONNX Runtime against torch on drawn inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oneflow.engine.core.errors import ArgumentError, RunError, UnsupportedError
from oneflow.engine.onnx.compare import Difference, described, difference, run_model
from oneflow.engine.onnx.dispatch import export_traced, source_of
from oneflow.engine.onnx.exporter import StrPath
from oneflow.engine.onnx.packages import runtime_package

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_WHAT = "flow.onnx.convert_to_onnx_and_check"


def convert_to_onnx_and_check(
    graph: Any,
    args: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    external_data: bool = False,
    ort_optimize: bool = True,
    opset: int | None = None,
    flow_weight_dir: StrPath | None = None,
    onnx_model_path: StrPath | None = None,
    dynamic_batch_size: bool | Sequence[str] = False,
    device: str = "cpu",
    input_tensor_range: tuple[float, float] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> str:
    """Exports an ``nn.Graph`` or a module, runs ONNX Runtime and torch on the same drawn inputs and returns the path of
    the model.

    ``args`` and ``kwargs`` are example arguments as for ``flow.onnx.export``; a graph that was called needs none.
    ``onnx_model_path`` is a file that ends in ``.onnx`` or a folder for ``model.onnx``; None makes a folder for
    temporary files, which is yours to remove. Floats are drawn from a normal distribution, or evenly from
    ``input_tensor_range``; whole numbers are those of the examples in another order, or drawn from the range. With
    ``dynamic_batch_size`` batches of one and of three are compared too. ``device`` is where ONNX Runtime computes,
    ``ort_optimize`` whether it rewrites the model first. Outputs that are further apart than ``atol + rtol * |value|``,
    and than rounding leaves of their largest value, are an error that names the largest difference.
    """
    runtime = runtime_package(_WHAT)
    provider = _provider(runtime, device)
    if flow_weight_dir is not None:
        raise UnsupportedError(
            f"{_WHAT} takes the weights that the modules have; load those of {str(flow_weight_dir)!r} into them first "
            f"(load_state_dict)"
        )
    path = _path(onnx_model_path)
    source = source_of(graph, args, kwargs)
    names = export_traced(source, path, opset, external_data, dynamic_batch_size).inputs()
    for tensors in _draws(source.examples, names, dynamic_batch_size, input_tensor_range):
        expected = [_array(value) for value in source.run(tensors)]
        feeds = {name: _array(tensor) for name, tensor in zip(names, tensors, strict=True)}
        outputs, found = run_model(runtime, str(path), feeds, provider, ort_optimize)
        _require_close(
            path,
            source.title,
            [difference(*both, rtol, atol, "torch's") for both in zip(outputs, expected, found, strict=True)],
        )
    return str(path)


def _require_close(path: Path, title: str, compared: list[Difference]) -> None:
    apart = [found for found in compared if not found.is_close]
    if apart:
        raise RunError(
            f"model {str(path)!r} and {title} differ in {len(apart)} of {len(compared)} outputs: "
            f"{described(max(apart, key=lambda d: d.largest))}. Give rtol and atol if that is rounding"
        )


def _provider(runtime: Any, device: str) -> str:
    provider = _PROVIDERS.get(str(device))
    if provider is None:
        raise ArgumentError(f"device is one of {sorted(_PROVIDERS)}, got {device!r}")
    if provider not in runtime.get_available_providers():
        raise UnsupportedError(
            f"the installed ONNX Runtime has no {provider} for device {device!r}, only "
            f"{runtime.get_available_providers()}"
        )
    return provider


def _path(given: StrPath | None) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="onnx_model_") if given is None else given)
    return folder if folder.suffix == ".onnx" else folder / "model.onnx"


def _array(value: torch.Tensor) -> np.ndarray:
    if value.dtype == torch.bfloat16:
        raise UnsupportedError("numpy has no bfloat16, so such tensors cannot be compared; export without the check")
    return value.detach().cpu().numpy()


def _draws(
    examples: list[torch.Tensor], names: list[str], batch: bool | Sequence[str], limits: tuple[float, float] | None
) -> list[list[torch.Tensor]]:
    """Inputs like the examples, the same every time; for any batch also a batch of one and one of three."""
    generator = torch.Generator().manual_seed(0)
    drawn = [_drawn(example.detach().cpu(), generator, limits).to(example.device) for example in examples]
    if batch is False:
        return [drawn]
    batched = [tensor.dim() > 0 if batch is True else name in batch for name, tensor in zip(names, drawn)]
    return [drawn, *([_sized(t, size) if has_batch else t for t, has_batch in zip(drawn, batched)] for size in (1, 3))]


def _sized(tensor: torch.Tensor, size: int) -> torch.Tensor:
    return torch.cat([tensor] * -(-size // tensor.shape[0]))[:size]


def _drawn(example: torch.Tensor, generator: torch.Generator, limits: tuple[float, float] | None) -> torch.Tensor:
    shape, dtype = example.shape, example.dtype
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if limits is not None:
        even = torch.rand(shape, generator=generator, dtype=torch.float64) * (limits[1] - limits[0]) + limits[0]
        return (even if dtype.is_floating_point else even.floor()).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return example.flatten()[torch.randperm(example.numel(), generator=generator)].reshape(shape)
